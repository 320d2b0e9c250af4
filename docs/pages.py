"""Hooks of mkdocs: pages from other folders of the repository, and links between them and docs/.

Nothing is copied by hand: README.md is the site's first page, the examples' pages are its case studies, and each
`results.md` under benchmarks/ is a separate table. A link to a page becomes a link on the site, one to any other file
of the repository becomes its words alone; a link to nothing is left as it is, and the strict build stumbles over it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
CASES = ("airimu", "heimdall", "qwen_vl", "swipe")
MORE = "More"
"""Where how-tos stand that mkdocs.yml does not name."""

_CODE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def elsewhere() -> dict[str, str]:
    """Files outside docs/ by their place on the site."""
    found = {
        "index.md": "README.md",
        "project/changelog.md": "CHANGELOG.md",
        "project/architecture.md": "ARCHITECTURE.md",
        "project/contributing.md": "CONTRIBUTING.md",
        "project/plugin.md": "examples/plugin/README.md",
        "cases/whole_road.md": "examples/heimdall/whole_road.md",
        "benchmarks/index.md": "benchmarks/README.md",
    }
    found |= {f"cases/{name}.md": f"examples/{name}/README.md" for name in CASES}
    for path in sorted((*ROOT.glob("benchmarks/*/*.md"), *ROOT.glob("benchmarks/*/*.svg"))):
        name = path.parent.name if path.stem == "results" else f"{path.parent.name}-{path.stem}"
        found[f"benchmarks/{name}{path.suffix}"] = str(path.relative_to(ROOT))
    return found


def on_config(config: Any) -> Any:
    """Adds to the list of pages what lies in the folders and is not named there."""
    named = set(_pages(config["nav"]))
    howtos = sorted(f"howto/{path.name}" for path in ROOT.glob("docs/howto/*.md"))
    tables = [place for place in elsewhere() if re.fullmatch(r"benchmarks/(?!index)[\w-]+\.md", place)]
    for entry in config["nav"]:
        if "How-to" in entry and (new := [page for page in howtos if page not in named]):
            entry["How-to"].append({MORE: new})
        if "Benchmarks" in entry:
            entry["Benchmarks"] += tables
    return config


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for one in (nav.values() if isinstance(nav, dict) else nav) for page in _pages(one)]


def on_files(files: Files, config: Any) -> Files:
    for place, source in elsewhere().items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    place = page.file.src_uri
    if "/" not in place:  # it stands alone in its tab
        page.meta["hide"] = ["navigation"]
    return relinked(markdown, place, elsewhere())


def relinked(markdown: str, place: str, moved: dict[str, str]) -> str:
    """The text of the page at `place`, with its links as the site has them. Code is left alone."""
    source = moved.get(place, f"docs/{place}")
    homes = {home: on_site for on_site, home in moved.items()}

    def link(found: re.Match[str]) -> str:
        image, words, target, anchor = found.groups()
        if not target or re.match(r"[a-z]+:|/", target):
            return found[0]
        home = os.path.normpath(os.path.join(os.path.dirname(source), target))
        page = next((one for one in (home, f"{home}/README.md", f"{home}/results.md") if one in homes), None)
        on_site = homes[page] if page is not None else home.removeprefix("docs/") if home.startswith("docs/") else None
        if on_site is None:
            return words if (ROOT / home).exists() else found[0]
        return f"{image}[{words}]({os.path.relpath(on_site, os.path.dirname(place) or '.')}{anchor or ''})"

    parts, last = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_LINK.sub(link, markdown[last : code.start()]), code[0]]
        last = code.end()
    return "".join((*parts, _LINK.sub(link, markdown[last:])))
