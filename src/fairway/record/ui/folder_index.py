"""What lies in a folder: its records in short, and the exports that are at work there. Nothing in it is believed.

A record is known to the pages by a key made of its place, never by a path: what is not on the shelf cannot be asked
for.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from fairway.diagnostics.errors import UserError
from fairway.model.memory_check import is_regular
from fairway.record.files import FORMAT, hash_once
from fairway.record.page.comparison import brief
from fairway.record.page.sanitize import fields, items, name, number, objects, text, whole
from fairway.record.page.summary import tell
from fairway.record.progress import FILE
from fairway.record.progress import FORMAT as PROGRESS
from fairway.record.reader import read_object
from fairway.workers.staging import MARK, PREFIX

ENDING = ".fairway.json"
MOST = 5000
"""Records that are listed; the newest are."""

FOLDERS = 20_000
"""Folders that are looked into."""

HASHING = 0.5
"""Seconds that one look may spend on hashing files. What was not reached says so, and the next look goes on."""

LARGEST_HASHED = 2**29
"""Bytes. A larger file is compared with its record when it is opened; the list would keep everybody waiting for it."""

SLOW, PATIENCE = 0.2, 5
"""A look that took so many seconds is not repeated before so many times as long have passed."""

LARGEST_PROGRESS = 2**20


@dataclass(frozen=True)
class _CachedRecord:
    stamp: tuple[int, int]
    row: dict[str, Any]
    model: Path | None
    sha256: str


class FolderIndex:
    """A folder and what was read of it; a record is read again only where it has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._known: dict[str, _CachedRecord] = {}
        self._paths: dict[str, Path] = {}
        self._lock = Lock()
        self._last: dict[str, Any] = {}
        self._took = self._until = 0.0

    def look(self) -> dict[str, Any]:
        """Everything that the list shows."""
        with self._lock:
            began = time.monotonic()
            if self._took > SLOW and began < self._until:
                return self._last
            records, workshops, left_out = self._walk()
            rows = []
            until = time.monotonic() + HASHING
            for path, stamp in records:
                known = self._read(path, stamp)
                rows.append({**known.row, "file": _state(known, until)})
            running = [one for one in map(_running, sorted(workshops)) if one is not None]
            self._last = {"folder": name(self.folder.name), "records": rows, "running": running, "left_out": left_out}
            ended = time.monotonic()
            self._took, self._until = ended - began, ended + PATIENCE * (ended - began)
            return self._last

    def path(self, key: str) -> Path | None:
        """The record of that key, where the last look saw it."""
        return self._paths.get(key)

    def _walk(self) -> tuple[list[tuple[Path, os.stat_result]], list[Path], int]:
        """Records, newest first, and workshops. Links are not followed: they may lead anywhere."""
        found: list[tuple[Path, os.stat_result]] = []
        workshops: list[Path] = []
        for count, (folder, below, files) in enumerate(os.walk(self.folder, followlinks=False)):
            workshops += [Path(folder, one) for one in below if one.startswith(PREFIX)]
            below[:] = sorted(one for one in below if not one.startswith("."))
            for file in files:
                path = Path(folder, file)
                if file.endswith(ENDING) and is_regular(path) and not path.is_symlink():
                    found.append((path, path.stat()))
            if count >= FOLDERS:
                break
        found.sort(key=lambda one: -one[1].st_mtime_ns)
        return found[:MOST], workshops, max(0, len(found) - MOST)

    def _read(self, path: Path, stat: os.stat_result) -> _CachedRecord:
        place = str(path.relative_to(self.folder))
        key = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:24]
        stamp = stat.st_mtime_ns, stat.st_size
        known = self._known.get(key)
        if known is None or known.stamp != stamp:
            known = self._known[key] = _summary(key, path, place, stamp)
        self._paths[key] = path
        return known


def _summary(key: str, path: Path, place: str, stamp: tuple[int, int]) -> _CachedRecord:
    row: dict[str, Any] = {"key": key, "place": name(place.removesuffix(ENDING) + ".onnx"), "when": stamp[0] / 1e9}
    try:
        record = read_object(path)
        if record.get("format") != FORMAT or "verdict" not in record:
            raise ValueError("it is no record of this version's")
    except (UserError, ValueError) as error:
        why = error.finding.seen if isinstance(error, UserError) else str(error)
        return _CachedRecord(stamp, {**row, "verdict": "unreadable", "note": text(why)}, None, "")
    story = tell(record, "")
    file = fields(record.get("file"))
    model = path.with_name(Path(str(file.get("name", ""))).name or "-")
    facts = brief(story)
    row |= {
        "verdict": story["verdict"],
        "model": story["subject"]["name"],
        "route": story["route"],
        "note": "",
        "domain": facts["domain"] or "one fixed shape",
        "samples": facts["samples right"],
        "level": facts["level"],
        "worst": facts["worst error, of what is allowed"],
        "remedies": facts["remedies"],
        "findings": facts["findings"],
        "torch": story["versions"].get("torch", ""),
    }
    return _CachedRecord(stamp, row, model if model.suffix == ".onnx" else None, name(file.get("sha256")))


def _state(known: _CachedRecord, until: float) -> str:
    """Whether the file is still the one that the record is about."""
    if not known.sha256:
        return "none"  # nothing was delivered
    if known.model is None or not is_regular(known.model):
        return "missing"
    try:
        if known.model.stat().st_size > LARGEST_HASHED:
            return "too large"
        if time.monotonic() > until:
            return "not yet looked at"
        return "as recorded" if hash_once(known.model) == known.sha256 else "changed"
    except OSError:
        return "missing"


def _running(workshop: Path) -> dict[str, Any] | None:
    """What an export that is at work here says of itself; None for what is none, or has just ended."""
    path = workshop / FILE
    if not (workshop / MARK).exists() or not is_regular(path) or path.is_symlink():
        return None
    try:
        if path.stat().st_size > LARGEST_PROGRESS:
            return None
        said = read_object(path)
    except (UserError, OSError):
        return None
    if said.get("format") != PROGRESS:
        return None
    return {
        "key": hashlib.sha256(str(workshop).encode(errors="surrogateescape")).hexdigest()[:24],
        **{key: name(said.get(key)) for key in ("target", "model", "part", "doing", "rung", "counted", "best")},
        **{key: number(said.get(key)) or 0 for key in ("now", "began", "rung_began", "since", "at")},
        **{key: whole(said.get(key)) for key in ("done", "total", "first")},
        "walked": list(_walked(said)),
        "alive": Path("/proc", str(whole(said.get("pid"), -1))).exists(),
    }


def _walked(said: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in objects(said.get("walked"), 100):
        yield {
            "route": name(one.get("route")),
            "verdict": name(one.get("verdict")),
            "seconds": number(one.get("seconds")),
            "right": number(one.get("right")),
            "samples": number(one.get("samples")),
            "codes": [name(code) for code in items(one.get("codes"), 20)],
        }
