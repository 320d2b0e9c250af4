"""Where a piece of work stands, made of the events it sends: for a terminal's one line, and for whoever watches.

Events are `("part", name)`, `("stage", text)`, `("rung", step)`, `("outcome", rung)`, `("sample", done, total, text)`,
`("count", done, total, things, text)`, `("best", text)`, and `("tick",)`, which says that somebody is still at work.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

FILE = "progress.json"
FORMAT = 1
EVERY = 0.5
"""Seconds between two writings; a rung that begins or ends is written at once."""

ENOUGH = 1.0
"""Seconds of counting before the time that is left is guessed."""

_BETTER = ("failed", "wrong", "unproven", "verified")


@dataclass(frozen=True)
class RungFinished:
    """A rung that is behind us."""

    route: str
    verdict: str
    seconds: float
    right: int | None
    samples: int | None
    codes: tuple[str, ...]

    def __str__(self) -> str:
        return self.verdict + (f", {self.right} of {self.samples} right" if self.samples else "")


@dataclass(frozen=True)
class Standing:
    """What is being done, how far it is, and what is best so far. Times are seconds since 1970."""

    began: float
    part: str = ""
    doing: str = "starting"
    rung: str = ""
    rung_began: float = 0.0
    walked: tuple[RungFinished, ...] = ()
    done: int = 0
    total: int = 0
    counted: str = ""
    """What is counted: samples, trials, …"""
    first: int = 0
    """How many were done when the counting began, at `since`."""
    since: float = 0.0
    at: float = 0.0
    """When `done` was last heard of."""
    best: str = ""

    def left(self, now: float) -> float | None:
        """Seconds until what is counted is through, as far as its pace so far tells."""
        spent, did = self.at - self.since, self.done - self.first
        if did <= 0 or spent < ENOUGH:
            return None
        return max(0.0, spent / did * (self.total - self.done) - (now - self.at))

    def words(self, now: float) -> list[str]:
        """What to say, the most needed first: a narrow line has room for some of it only."""
        told = [" ".join(one for one in (self.part, self.rung or self.doing) if one)]
        if self.total:
            told.append(f"{self.done}/{self.total} {self.counted}".rstrip())
        if (left := self.left(now)) is not None:
            told.append(f"{show_time(left)} left")
        if self.best:
            told.append(f"best so far {self.best}")
        return told + ([self.doing] if self.rung and self.doing else [])


def show_time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def hear(standing: Standing, event: Any, now: float) -> Standing:
    """The standing after one more event; one that is not known changes nothing."""
    match event:
        case ("part", name):
            return replace(standing, part=str(name), rung="", walked=(), best="", total=0)
        case ("stage", text):
            return replace(standing, doing=str(text), rung="", total=0)
        case ("rung", step):
            return replace(standing, rung=step.name, rung_began=now, doing="", total=0)
        case ("sample", done, total, text):
            return _count(replace(standing, doing=str(text)), done, total, "samples", now)
        case ("count", done, total, things, text):
            return _count(replace(standing, doing=str(text)), done, total, str(things), now)
        case ("outcome", rung):
            walked = (*standing.walked, _walked(rung))
            best = max(walked, key=lambda one: (_BETTER.index(one.verdict), one.right or 0))
            return replace(
                standing,
                walked=walked,
                rung="",
                doing=f"{walked[-1].route}: {walked[-1].verdict}",
                total=0,
                best=str(best),
            )
        case ("best", text):
            return replace(standing, best=str(text))
    return standing


def _count(standing: Standing, done: int, total: int, what: str, now: float) -> Standing:
    again = standing.total == 0 or what != standing.counted or done < standing.done
    first, since = (done, now) if again else (standing.first, standing.since)
    return replace(standing, done=done, total=total, counted=what, first=first, since=since, at=now)


def _walked(rung: Any) -> RungFinished:
    evidence = rung.evidence
    right, samples = None, None
    if evidence is not None:
        right, samples = evidence.points_right, sum(not one.note.startswith("not legal") for one in evidence.tested)
    codes = tuple(dict.fromkeys(finding.code for finding in rung.findings))
    return RungFinished(rung.step.name, rung.verdict, round(rung.seconds, 2), right, samples, codes)


class Diary:
    """Keeps a workshop's `progress.json` up to date while an export runs; it goes with the workshop.

    Always a whole file, since each is written beside and renamed. A disk that is full costs the diary, not the export.
    """

    def __init__(self, folder: Path, target: str, model: str) -> None:
        self._path = folder / FILE
        self._about = {"format": FORMAT, "pid": os.getpid(), "target": target, "model": model}
        self._standing = Standing(time.time())
        self._written = 0.0
        self._write(self._standing.began)

    def __call__(self, event: Any) -> None:
        now = time.time()
        self._standing = hear(self._standing, event, now)
        if event[0] in ("rung", "outcome") or now - self._written >= EVERY:
            self._write(now)

    def _write(self, now: float) -> None:
        self._written = now
        part = self._path.with_suffix(".part")
        with contextlib.suppress(OSError):
            part.write_text(json.dumps({**self._about, "now": now, **asdict(self._standing)}))
            os.rename(part, self._path)


def both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    """Tells two listeners of each event."""

    def tell(event: Any) -> None:
        first(event)
        second(event)

    return tell
