"""The report page: one HTML file with its style, its script and its data. It loads nothing from other hosts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.memory_check import is_regular_file
from fairway.record.files import get_record_path, hash_file, read_versions
from fairway.record.page.comparison import compare_summaries
from fairway.record.page.graph import read_graph
from fairway.record.page.measurements import read_measurement
from fairway.record.page.neighbors import find_neighborhood
from fairway.record.page.sanitize import PageData, clean_text
from fairway.record.page.summary import WRONG, Summary, summarize
from fairway.record.reader import compare_with_record, read_overview
from fairway.record.schema import Record
from fairway.workers.workshop import replace_file

LARGEST_PAGE_BYTES = 2_800_000
"""Names of nodes, then samples, are left out of a larger page until it fits."""
MAX_TITLE_CHARACTERS = 200

SCRIPTS = ("drawing.js", "evidence.js", "graph.js", "measured.js", "page.js")


def make_page(given: Sequence[Path], measured: Sequence[Path] = (), back: str | None = None) -> str:
    """Return the page for files and records, and for measurements of them.

    `back` is the address that the page was opened from, for a page that a server shows.
    """
    stories = [_make_story(path) for path in given]
    _number_equal_labels(stories)
    measurements: dict[str, list[PageData]] = {"bench": [], "sensitivity": []}
    for path in measured:
        kind, measurement = read_measurement(path)
        measurements[kind].append({"label": path.name, **measurement})
    data = {
        "stories": stories,
        "comparison": compare_summaries(stories) if len(stories) > 1 else None,
        **measurements,
        "made_by": f"Fairway {read_versions().get('fairway', '')}",
        "back": back,
    }
    page = render_page(data)
    while len(page.encode()) > LARGEST_PAGE_BYTES:
        shortened = [_shorten(story) for story in stories]
        if not any(shortened):
            seen = f"{given[0].name}: its page would have {len(page.encode())} bytes; {LARGEST_PAGE_BYTES} are allowed"
            raise complain(Code.RECORD_UNREADABLE, seen)
        page = render_page(data)
    return page


def _shorten(story: Summary) -> bool:
    """Leave out a quarter of the names of nodes, then of the samples, right ones first. The counts stay."""
    nodes = story["graph"]["nodes"] if story["graph"] else []
    if nodes:
        del nodes[len(nodes) * 3 // 4 :]
        return True
    tested = story["evidence"]["tested"] if story["evidence"] else []
    if tested:
        tested.sort(key=lambda row: row[1] != WRONG)
        del tested[len(tested) * 3 // 4 :]
    return bool(tested)


def write_page(path: Path, page: str) -> None:
    """Write the page atomically."""
    try:
        replace_file(path, page)
    except OSError as error:
        raise complain(Code.CANNOT_WRITE, f"{path}: {error.strerror or error}") from error


def _make_story(path: Path) -> Summary:
    """Return the summary of a record and of the file it is about, or of a file alone."""
    if path.suffix == ".json":
        record = read_overview(path)
        return _add_graph(record, path.name, _find_model(path, record))
    stored, finding = compare_with_record(path)
    story = _add_graph(stored if finding is None else None, path.name, path)
    if finding is not None:
        story["note"] = clean_text(f"{finding.code}: {finding.seen}")
        story["verdict"] = "no record" if stored is None else "changed"
    elif stored is None:
        story["note"] = f"There is no {get_record_path(path).name} beside the file. Nothing shows that it is right."
    return story


def _find_model(path: Path, record: Record) -> Path | None:
    """Return the unchanged model file of a record: beside it, or at the path that `--json` printed."""
    if record.file is None:
        return None
    places = [path.with_name(record.file.name), *([Path(record.path)] if record.path else [])]
    for place in places:
        if place.suffix == ".onnx" and is_regular_file(place) and hash_file(place) == record.file.sha256:
            return place
    return None


def _add_graph(record: Record | None, label: str, model: Path | None) -> Summary:
    story: Summary = {**summarize(record, label), "graph": None, "around": None, "note": ""}
    if model is None:
        story["note"] = "The model file is missing or has changed, so its graph is not shown."
        return story
    story["graph"], proto = read_graph(model)
    for finding in story["findings"]:
        if finding["at"]:
            story["around"] = find_neighborhood(proto, finding["at"])
            break
    return story


def _number_equal_labels(stories: Sequence[Summary]) -> None:
    """Number files with the same name from different folders."""
    labels = [story["label"] for story in stories]
    for number, story in enumerate(stories, 1):
        if labels.count(story["label"]) > 1:
            story["label"] = f"{number}. {story['label']}"


def render_page(data: PageData) -> str:
    title = " · ".join(story["label"] for story in data["stories"])[:MAX_TITLE_CHARACTERS]
    scripts = [read_asset(script) for script in SCRIPTS]
    return compose_page(f"{title} – Fairway report", read_asset("page.css"), scripts, data)


def read_asset(name: str) -> str:
    return (files("fairway.record.page") / "assets" / name).read_text(encoding="utf-8")


def compose_page(title: str, style: str, scripts: Sequence[str], data: object, extra_policy: str = "") -> str:
    """Return a page around its data. A browser runs only the script with its hash; `extra_policy` allows it more."""
    script = "\n".join(scripts)
    script = f'(() => {{\n"use strict";\n{script}\n}})();\n'
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src '{_hash_script(script)}'; base-uri 'none'"
    values = {
        "TITLE": html.escape(title),
        "POLICY": html.escape(policy + extra_policy),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": escape_json(data),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], read_asset("page.html"))


def _hash_script(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def escape_json(data: object) -> str:
    """Return JSON for a script element. No name in it can end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()
