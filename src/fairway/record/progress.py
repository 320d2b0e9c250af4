"""Progress of a running command: typed events in, a snapshot out.

The terminal shows the snapshot in one line. An export also writes it to `progress.json` in its workshop, where
`fairway ui` reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeAlias

PROGRESS_FILE = "progress.json"
PROGRESS_FORMAT = 2
WRITE_INTERVAL_SECONDS = 0.5
MIN_SECONDS_FOR_ESTIMATE = 1.0

VERDICT_ORDER = ("failed", "wrong", "unproven", "verified")


@dataclass(frozen=True)
class PartStarted:
    """A part that has stages and rungs started, such as one graph of a generator."""

    name: str


@dataclass(frozen=True)
class StageStarted:
    """A stage that is not a rung started, such as reading the model."""

    label: str


@dataclass(frozen=True)
class RungStarted:
    """A rung of the ladder started."""

    route: str


@dataclass(frozen=True)
class RungFinished:
    """A rung of the ladder ended. `seconds` is the time it took."""

    route: str
    verdict: str
    seconds: float
    samples_right: int | None = None
    samples_total: int | None = None
    finding_codes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.samples_total:
            return self.verdict
        return f"{self.verdict}, {self.samples_right} of {self.samples_total} right"


@dataclass(frozen=True)
class ItemsCounted:
    """Some of a known number of items are done: samples, trials, windows."""

    done: int
    total: int
    unit: str
    label: str = ""


@dataclass(frozen=True)
class BestChanged:
    """There is a new best candidate of something that is not a ladder: a scheme, a set of optimizer passes."""

    label: str


@dataclass(frozen=True)
class StillWorking:
    """A heartbeat. It changes nothing but keeps displays alive."""


Event: TypeAlias = PartStarted | StageStarted | RungStarted | RungFinished | ItemsCounted | BestChanged | StillWorking
EventSink: TypeAlias = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """The default event sink; does nothing."""


@dataclass(frozen=True)
class Progress:
    """The stage or rung that runs, its count, and the best result so far. Times are Unix seconds."""

    started_at: float
    part: str = ""
    label: str = "starting"
    route: str = ""
    route_started_at: float = 0.0
    finished: tuple[RungFinished, ...] = ()
    count: ItemsCounted | None = None
    count_started_at: float = 0.0
    count_started_with: int = 0
    count_updated_at: float = 0.0
    best: str = ""

    def seconds_left(self, now: float) -> float | None:
        """Estimate the time until the current count is complete, or return None if it is too early to tell."""
        if self.count is None:
            return None
        elapsed = self.count_updated_at - self.count_started_at
        items = self.count.done - self.count_started_with
        if items <= 0 or elapsed < MIN_SECONDS_FOR_ESTIMATE:
            return None
        remaining = elapsed / items * (self.count.total - self.count.done)
        return max(0.0, remaining - (now - self.count_updated_at))

    def describe(self, now: float) -> list[str]:
        """Return phrases for a line, the most important first, because a narrow line has room for only some."""
        phrases = [" ".join(word for word in (self.part, self.route or self.label) if word)]
        if self.count is not None and self.count.total:
            phrases.append(f"{self.count.done}/{self.count.total} {self.count.unit}")
        if (left := self.seconds_left(now)) is not None:
            phrases.append(f"{format_duration(left)} left")
        if self.best:
            phrases.append(f"best so far {self.best}")
        return phrases + ([self.label] if self.route and self.label else [])


def format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def apply_event(progress: Progress, event: Event, now: float) -> Progress:
    """Return the progress after one more event."""
    match event:
        case PartStarted(name):
            return replace(progress, part=name, route="", finished=(), best="", count=None)
        case StageStarted(label):
            return replace(progress, label=label, route="", count=None)
        case RungStarted(route):
            return replace(progress, route=route, route_started_at=now, label="", count=None)
        case RungFinished():
            return _finish_rung(progress, event)
        case ItemsCounted():
            return _update_count(progress, event, now)
        case BestChanged(label):
            return replace(progress, best=label)
        case StillWorking():
            return progress


def _finish_rung(progress: Progress, rung: RungFinished) -> Progress:
    finished = (*progress.finished, rung)
    best = max(finished, key=lambda rung: (VERDICT_ORDER.index(rung.verdict), rung.samples_right or 0))
    label = f"{rung.route}: {rung.verdict}"
    return replace(progress, label=label, route="", count=None, finished=finished, best=str(best))


def _update_count(progress: Progress, count: ItemsCounted, now: float) -> Progress:
    previous = progress.count
    if previous is None or previous.unit != count.unit or count.done < previous.done:
        progress = replace(progress, count_started_at=now, count_started_with=count.done)
    return replace(progress, label=count.label, count=count, count_updated_at=now)


class ProgressFile:
    """Writes progress to `progress.json` in the workshop while an export runs.

    The file is replaced atomically, so readers always see a complete document. A full disk costs the progress file, not
    the export.
    """

    def __init__(self, folder: Path, target: str, model: str) -> None:
        self._path = folder / PROGRESS_FILE
        self._header = {"format": PROGRESS_FORMAT, "pid": os.getpid(), "target": target, "model": model}
        self._progress = Progress(started_at=time.time())
        self._write(self._progress.started_at)

    def __call__(self, event: Event) -> None:
        now = time.time()
        self._progress = apply_event(self._progress, event, now)
        if isinstance(event, RungStarted | RungFinished) or now - self._written_at >= WRITE_INTERVAL_SECONDS:
            self._write(now)

    def _write(self, now: float) -> None:
        self._written_at = now
        partial = self._path.with_suffix(".part")
        with contextlib.suppress(OSError):
            partial.write_text(json.dumps({**self._header, "now": now, **asdict(self._progress)}))
            os.rename(partial, self._path)  # not os.replace: tests/faults counts its calls to find the commit


def send_to_both(first: EventSink, second: EventSink) -> EventSink:
    """Return a sink that sends each event to two others."""

    def send(event: Event) -> None:
        first(event)
        second(event)

    return send
