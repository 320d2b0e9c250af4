"""The site is built strictly, without a request; its pages make none, and a broken link is an error."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from browsing import Look

ROOT = Path(__file__).parents[2]
NO_NETWORK = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_MKDOCS_2_WARNING": "1"}


def build(root: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, env={**os.environ, **NO_NETWORK})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Loaded(HTMLParser):
    """Return the files that a page makes a browser load at once, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        held = dict(attributes)
        where = held.get("href") if tag == "link" else held.get("src")
        if where and held.get("rel") not in ("canonical", "next", "prev"):
            self.asked.append(where)


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    for page in ROOT.glob("docs/**/*.md"):
        assert str(page.relative_to(ROOT / "docs").with_suffix(".html")) in pages
    for name in ("airimu", "heimdall", "qwen_vl", "swipe"):
        assert f"cases/{name}.html" in pages
    for table in ROOT.glob("benchmarks/*/results.md"):
        assert f"benchmarks/{table.parent.name}.html" in pages
    for page in pages:
        asked = Loaded((site / page).read_text()).asked
        assert [one for one in asked if re.match(r"(\w+:)?//", one)] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text()), style


def test_a_table_of_a_benchmark_is_the_one_in_the_repository(site: Path) -> None:
    rows = (ROOT / "benchmarks/mutants/results.md").read_text().splitlines()
    row = next(one for one in rows if one.startswith("| dim fixed"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    told = re.sub(r"<[^>]+>", " ", (site / "benchmarks/mutants.html").read_text())
    assert re.search(r"\s+".join(map(re.escape, cells)), told)


def test_broken_links_and_lost_pages_fail_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for pattern in ("mkdocs.yml", "*.md", "examples/*/*.md", "benchmarks/**/*.md", "benchmarks/*/*.svg"):
        for path in ROOT.glob(pattern):
            (tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / path.relative_to(ROOT))
    with (tmp_path / "docs/tutorial.md").open("a") as page:
        page.write("\n[gone](howto/not-there.md) [no such part](explanation/evidence.md#not-a-part) [root](/etc)\n")
    with (tmp_path / "examples/airimu/README.md").open("a") as page:
        page.write("\n[gone](../../docs/howto/neither.md) [nowhere](nothing/at-all.md)\n")
    (tmp_path / "docs/explanation/lost.md").write_text("# Nothing leads here\n")
    (tmp_path / "docs/howto/new-one.md").write_text("# A how-to that mkdocs.yml does not name\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    broken = ("howto/not-there.md", "#not-a-part", "'/etc'", "neither.md", "nothing/at-all.md", "explanation/lost.md")
    assert [words for words in broken if words not in done.stderr] == []
    assert "new-one.md" not in done.stderr, "a new how-to finds its place by itself"


def test_pages_open_in_a_browser_and_are_searched(look: Look, address: str) -> None:
    page = look(address)
    page.wait_for_load_state("networkidle")  # a page that is left while it loads says so on the console
    assert page.locator("h1").first.inner_text().startswith("Fairway")
    page.goto(f"{address}cases/airimu.html", wait_until="networkidle")
    assert page.locator("h1").inner_text().startswith("AirIMU: it was not the hidden state")
    field, found = page.locator("input.md-search__input"), page.locator(".md-search-result__item")
    field.click()
    field.press_sequentially("GuardOnData")
    for _ in range(20):  # what is typed before the index has come is lost
        if found.count():
            break
        page.wait_for_timeout(300)
        field.press("Backspace")
        field.press_sequentially("a")
    assert "GuardOnDataDependentSymNode" in " ".join(found.all_text_contents())
    page.goto(f"{address}reference/cli.html", wait_until="networkidle")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    small = look(f"{address}howto/int8-is-slower.html", width=400, color_scheme="dark")
    small.wait_for_load_state("networkidle")
    assert small.evaluate("document.documentElement.scrollWidth <= innerWidth")
