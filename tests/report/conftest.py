"""Debian's chromium, driven by Playwright. `tools/get-browser.sh`, which `make test` runs, installs it where it can."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from records_made import Opened

from fairway.report.page import make_page, write_page

SLIPS = re.compile(r"\[object \w+|undefined|\bNaN\b|\bnull\b")
"""What a script writes where it has no value."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no chromium on this machine; `make browser` installs Debian's, as root")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        # A test machine's root has no user namespaces for chromium's sandbox; the pages are our own.
        one = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """`opened(paths, with=…, width=…)` is a page of the report; whatever it says or asks for is an error at the end."""
    said: list[str] = []
    asked: list[str] = []
    pages = []

    def show(given: list[Path], besides: list[dict[str, Any]] | None = None, width: int = 1200, **how: Any) -> Any:
        measured = []
        for number, one in enumerate(besides or ()):
            measured.append(tmp_path / f"measured{number}.json")
            measured[-1].write_text(json.dumps(one))
        target = tmp_path / "report.html"
        write_page(target, make_page(given, measured))
        context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce", **how)
        page = context.new_page()
        pages.append(page)
        page.set_default_timeout(10_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(target.as_uri())
        page.wait_for_selector("#main section")
        return page

    yield show
    own = (tmp_path / "report.html").as_uri()
    slips = [found for page in pages for found in SLIPS.findall(page.locator("body").inner_text())]
    for page in pages:
        page.context.close()
    assert said == []
    assert slips == []
    assert {url.partition("#")[0] for url in asked} <= {own}
