"""The page: one file that holds its style, its script and its data, and asks no other host for anything."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from fairway.diagnostics.errors import complain
from fairway.model.memory_check import is_regular
from fairway.record.files import FORMAT, hash_file, record_path, versions
from fairway.record.page.comparison import compare
from fairway.record.page.graph import read_graph
from fairway.record.page.measurements import read_measured
from fairway.record.page.neighbors import neighbourhood
from fairway.record.page.sanitize import text
from fairway.record.page.summary import WRONG, Story, tell
from fairway.record.reader import compare_with_record, read_object

LARGEST = 2_800_000
"""Bytes of a page. Names of nodes, then samples, are left out until it fits."""

SCRIPTS = ("drawing.js", "evidence.js", "graph.js", "measured.js", "page.js")


def make_page(given: Sequence[Path], measured: Sequence[Path] = (), back: str | None = None) -> str:
    """The page for files and records, each with what the other says of it, and for what was measured besides.

    `back` is where the page was opened from, for one that is not a file of its own.
    """
    stories = [_story(path) for path in given]
    _tell_apart(stories)
    besides: dict[str, list[dict[str, Any]]] = {"bench": [], "sensitivity": []}
    for path in measured:
        kind, found = read_measured(path)
        besides[kind].append({"label": path.name, **found})
    data = {
        "stories": stories,
        "comparison": compare(stories) if len(stories) > 1 else None,
        **besides,
        "made_by": f"Fairway {versions().get('fairway', '')}",
        "back": back,
    }
    page = render(data)
    while len(page.encode()) > LARGEST:
        shorter = [_shorten(story) for story in stories]
        if not any(shorter):
            raise complain("FW115", f"{given[0].name}: its page would have {len(page.encode())} bytes")
        page = render(data)
    return page


def _shorten(story: Story) -> bool:
    """Leaves out a quarter of the names of nodes, then of the samples, right ones first; they are counted still."""
    nodes = story["graph"]["nodes"] if story["graph"] else []
    if nodes:
        del nodes[len(nodes) * 3 // 4 :]
        return True
    tested = story["evidence"]["tested"] if story["evidence"] else []
    if tested:
        tested.sort(key=lambda one: one[1] != WRONG)
        del tested[len(tested) * 3 // 4 :]
    return bool(tested)


def write_page(path: Path, page: str) -> None:
    """Whole or not at all: written beside, then renamed."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(page, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise complain("FW009", f"{path}: {error.strerror or error}") from error


def _story(path: Path) -> Story:
    """Of a record and the file it is about, where both are there; of a file alone, what can be seen in it."""
    if path.suffix == ".json":
        record = read_object(path)
        if record.get("format") != FORMAT or "verdict" not in record:
            raise complain("FW115", f"{path.name}: it is no record of this version's")
        return _with_graph(record, path.name, _about(path, record))
    stored, finding = compare_with_record(path)
    believed = stored if finding is None else None
    story = _with_graph({} if believed is None else dict(believed.whole), path.name, path)
    if finding is not None:
        story["note"] = text(f"{finding.code}: {finding.seen}")
        story["verdict"] = "no record" if stored is None else "changed"
    elif stored is None:
        story["note"] = f"There is no {record_path(path).name} beside the file: nothing is known of how right it is."
    return story


def _about(path: Path, record: dict[str, Any]) -> Path | None:
    """The model file that a record is about, where it lies beside it or where `--json` said, and is the same still."""
    file = record.get("file")
    file = file if isinstance(file, dict) else {}
    near = path.with_name(Path(str(file.get("name", ""))).name or "-")
    places = [near, Path(record["path"])] if isinstance(record.get("path"), str) else [near]
    for place in places:
        if place.suffix == ".onnx" and is_regular(place) and hash_file(place) == file.get("sha256"):
            return place
    return None


def _with_graph(record: dict[str, Any], label: str, model: Path | None) -> Story:
    story: Story = {**tell(record, label), "graph": None, "around": None, "note": ""}
    if model is None:
        story["note"] = "The model file is not beside the record, or has changed: its graph is not shown."
        return story
    story["graph"], proto = read_graph(model)
    for finding in story["findings"]:
        if finding["at"]:
            story["around"] = neighbourhood(proto, finding["at"])
            break
    return story


def _tell_apart(stories: Sequence[Story]) -> None:
    """Two files of one name in two folders are numbered."""
    labels = [story["label"] for story in stories]
    for number, story in enumerate(stories, 1):
        if labels.count(story["label"]) > 1:
            story["label"] = f"{number}. {story['label']}"


def render(data: dict[str, Any]) -> str:
    title = " · ".join(story["label"] for story in data["stories"])
    return compose(f"{title[:200]} – Fairway report", asset("page.css"), [asset(one) for one in SCRIPTS], data)


def asset(name: str) -> str:
    return (files("fairway.record.page") / "assets" / name).read_text(encoding="utf-8")


def compose(title: str, style: str, scripts: Sequence[str], data: Any, may: str = "") -> str:
    """A page around its data. A browser runs the script with this hash, and no other; `may` allows it more."""
    script = "\n".join(scripts)
    script = f'(() => {{\n"use strict";\n{script}\n}})();\n'
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src '{_hashed(script)}'; base-uri 'none'{may}"
    values = {
        "TITLE": html.escape(title),
        "POLICY": html.escape(policy),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": escaped(data),
    }
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], asset("page.html"))


def _hashed(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def escaped(data: Any) -> str:
    """JSON that can stand inside a script element: no name can end it, whatever it holds."""
    told = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        told = told.replace(character, f"\\u{ord(character):04x}")
    return told.encode("utf-8", "replace").decode()
