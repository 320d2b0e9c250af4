"""List the records in a folder, and the exports that run there. Nothing in them is trusted.

The pages know a record by a key made from its path, never by the path itself. So only a listed record can be requested.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fairway.diagnostics.errors import UserError
from fairway.model.memory_check import is_regular_file
from fairway.record.files import hash_file_cached
from fairway.record.page.comparison import list_facts
from fairway.record.page.sanitize import PageData, clean_name, clean_number, clean_text
from fairway.record.page.summary import summarize
from fairway.record.progress import PROGRESS_FILE, ItemsCounted, RungFinished
from fairway.record.reader import read_overview
from fairway.workers.workshop import WORKSHOP_MARK, WORKSHOP_PREFIX

RECORD_ENDING = ".fairway.json"
MAX_RECORDS = 5000
"""The newest records are listed."""
MAX_FOLDERS = 20_000
HASH_SECONDS = 0.5
"""The time that one listing may spend on hashing files. The next listing hashes the others."""
MAX_HASHED_BYTES = 2**29
"""A larger file is compared with its record when it is opened, because hashing it would delay the list."""
SLOW_LISTING_SECONDS = 0.2
PAUSE_PER_SECOND = 5
"""After a slow listing, the last one is shown for this many times as long as it took."""

MAX_PROGRESS_BYTES = 2**20
MAX_CODES = 20
MAX_RUNGS = 100


@dataclass(frozen=True)
class _CachedRecord:
    """A row of the list, and the file that it is about."""

    stamp: tuple[int, int]
    row: PageData
    model: Path | None
    sha256: str


class FolderIndex:
    """The records of a folder. A record is read again only if it has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._cache: dict[str, _CachedRecord] = {}
        self._paths: dict[str, Path] = {}
        self._lock = Lock()
        self._last: PageData = {}
        self._seconds = self._pause_until = 0.0

    def list_folder(self) -> PageData:
        """Return everything that the list shows."""
        with self._lock:
            started_at = time.monotonic()
            if self._seconds > SLOW_LISTING_SECONDS and started_at < self._pause_until:
                return self._last
            records, workshops, left_out = self._walk()
            rows = []
            deadline = time.monotonic() + HASH_SECONDS
            for path, stat in records:
                cached = self._read(path, stat)
                rows.append({**cached.row, "file": _check_file(cached, deadline)})
            running = [row for row in map(_read_running, sorted(workshops)) if row is not None]
            self._last = {
                "folder": clean_name(self.folder.name),
                "records": rows,
                "running": running,
                "left_out": left_out,
            }
            ended_at = time.monotonic()
            self._seconds = ended_at - started_at
            self._pause_until = ended_at + PAUSE_PER_SECOND * self._seconds
            return self._last

    def find_path(self, key: str) -> Path | None:
        """Return the record with this key, if a listing had it."""
        return self._paths.get(key)

    def _walk(self) -> tuple[list[tuple[Path, os.stat_result]], list[Path], int]:
        """Return the records, the newest first, the workshops, and the number of records left out.

        Links are not followed, because they may lead anywhere.
        """
        records: list[tuple[Path, os.stat_result]] = []
        workshops: list[Path] = []
        for count, (folder, subfolders, files) in enumerate(os.walk(self.folder, followlinks=False)):
            workshops += [Path(folder, name) for name in subfolders if name.startswith(WORKSHOP_PREFIX)]
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for file in files:
                path = Path(folder, file)
                if file.endswith(RECORD_ENDING) and is_regular_file(path) and not path.is_symlink():
                    records.append((path, path.stat()))
            if count >= MAX_FOLDERS:
                break
        records.sort(key=lambda entry: -entry[1].st_mtime_ns)
        return records[:MAX_RECORDS], workshops, max(0, len(records) - MAX_RECORDS)

    def _read(self, path: Path, stat: os.stat_result) -> _CachedRecord:
        place = str(path.relative_to(self.folder))
        key = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:24]
        stamp = stat.st_mtime_ns, stat.st_size
        cached = self._cache.get(key)
        if cached is None or cached.stamp != stamp:
            cached = self._cache[key] = _read_row(key, path, place, stamp)
        self._paths[key] = path
        return cached


def _read_row(key: str, path: Path, place: str, stamp: tuple[int, int]) -> _CachedRecord:
    row: PageData = {
        "key": key,
        "place": clean_name(place.removesuffix(RECORD_ENDING) + ".onnx"),
        "when": stamp[0] / 1e9,
    }
    try:
        record = read_overview(path)
    except UserError as error:
        return _CachedRecord(stamp, {**row, "verdict": "unreadable", "note": clean_text(error.finding.seen)}, None, "")
    story = summarize(record, "")
    facts = list_facts(story)
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
    if record.file is None:
        return _CachedRecord(stamp, row, None, "")
    model = path.with_name(record.file.name)
    return _CachedRecord(stamp, row, model if model.suffix == ".onnx" else None, record.file.sha256)


def _check_file(cached: _CachedRecord, deadline: float) -> str:
    """Return whether the file is still the one that the record is about."""
    if not cached.sha256:
        return "none"  # nothing was delivered
    if cached.model is None or not is_regular_file(cached.model):
        return "missing"
    try:
        if cached.model.stat().st_size > MAX_HASHED_BYTES:
            return "too large"
        if time.monotonic() > deadline:
            return "not yet looked at"
        return "as recorded" if hash_file_cached(cached.model) == cached.sha256 else "changed"
    except OSError:
        return "missing"


class _RunningExport(BaseModel):
    """The document that an export writes while it runs."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)

    format: Literal[2]
    pid: int
    target: str
    model: str
    now: float
    started_at: float
    part: str = ""
    label: str = ""
    route: str = ""
    finished: tuple[RungFinished, ...] = ()
    count: ItemsCounted | None = None
    count_started_at: float = 0.0
    count_started_with: int = 0
    count_updated_at: float = 0.0
    best: str = ""


def _read_running(workshop: Path) -> PageData | None:
    """Return the state of an export that runs in a workshop, or None if there is none or it has just ended."""
    path = workshop / PROGRESS_FILE
    if not (workshop / WORKSHOP_MARK).exists() or not is_regular_file(path) or path.is_symlink():
        return None
    try:
        if path.stat().st_size > MAX_PROGRESS_BYTES:
            return None
        running = _RunningExport.model_validate_json(path.read_bytes())
    except (ValueError, OSError):
        return None
    count = running.count
    return {
        "key": hashlib.sha256(str(workshop).encode(errors="surrogateescape")).hexdigest()[:24],
        "alive": Path("/proc", str(clean_number(running.pid) or -1)).exists(),
        "target": clean_name(running.target),
        "model": clean_name(running.model),
        "now": running.now,
        "started_at": running.started_at,
        "part": clean_name(running.part),
        "label": clean_name(running.label),
        "route": clean_name(running.route),
        "best": clean_name(running.best),
        "finished": [
            {
                "route": clean_name(rung.route),
                "verdict": clean_name(rung.verdict),
                "seconds": rung.seconds,
                "codes": [clean_name(code) for code in rung.finding_codes[:MAX_CODES]],
            }
            for rung in running.finished[:MAX_RUNGS]
        ],
        "count": None
        if count is None
        else {
            "done": clean_number(count.done) or 0,
            "total": clean_number(count.total) or 0,
            "unit": clean_name(count.unit),
            "started_with": clean_number(running.count_started_with) or 0,
            "started_at": running.count_started_at,
            "updated_at": running.count_updated_at,
        },
    }
