"""What a bench found, as plain data: the command line prints it, a report can draw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairway.tune.bench.paired_timing import Timings
from fairway.tune.bench.profile import Profile
from fairway.tune.bench.ratio import Ratio


@dataclass(frozen=True)
class FileNote:
    """A file that was benched, and what is known of it besides its speed."""

    path: str
    bytes: int
    """With the weights that lie beside it."""
    verdict: str
    """The record's, or `no record`, or `changed` where the record is about other bytes."""
    about: str
    """The same in a line for the user."""

    @property
    def trusted(self) -> bool:
        return self.verdict == "verified"


@dataclass(frozen=True)
class ArmRow:
    """One arm: what it is, and what it took to get ready in a process of its own."""

    name: str
    engine: str
    threads: int
    file: str | None = None
    level: str | None = None
    open_seconds: float | None = None
    first_seconds: float | None = None
    """The first call, at the first point; torch.compile compiles here."""
    peak_bytes: int | None = None
    """Of the whole process, over all points."""
    before_bytes: int | None = None
    """What it held before anything was opened: Python and the engine's libraries."""
    failure: str | None = None
    """Why it has no numbers, or not at every point."""

    @property
    def ready_seconds(self) -> float | None:
        """Until the first answer."""
        if self.open_seconds is None or self.first_seconds is None:
            return None
        return self.open_seconds + self.first_seconds


@dataclass(frozen=True)
class Speed:
    """One arm at one point. Seconds of a call."""

    arm: str
    p50: float
    p95: float
    p99: float
    ratio: Ratio | None
    """How many times faster than the first arm; None for that arm itself."""
    rounds: tuple[float, ...]
    """The median of each round; rounds pair up between arms."""
    durations: tuple[float, ...]
    """Every duration that was measured."""


@dataclass(frozen=True)
class AtPoint:
    """All arms at one point."""

    point: Mapping[str, int]
    base: str
    speeds: tuple[Speed, ...]
    failures: Mapping[str, str] = field(default_factory=dict)
    """Arms without numbers here, each with its reason."""


@dataclass(frozen=True)
class Bench:
    """Everything measured, and under which conditions."""

    files: tuple[FileNote, ...]
    arms: tuple[ArmRow, ...]
    points: tuple[AtPoint, ...]
    profiles: tuple[Profile, ...]
    sizes_from: str
    """Who says which sizes there are: the recipe, a record, or the file alone."""
    seconds: float
    seed: int
    machine: Mapping[str, Any]

    @property
    def timed(self) -> bool:
        return any(at.speeds for at in self.points)

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Ratios also say what follows from them."""
        fields = asdict(self)
        for at, told in zip(self.points, fields["points"], strict=True):
            for speed, row in zip(at.speeds, told["speeds"], strict=True):
                if speed.ratio is not None:
                    row["ratio"] = speed.ratio.as_dict()
        for arm, row in zip(self.arms, fields["arms"], strict=True):
            row["ready_seconds"] = arm.ready_seconds
        for profile, row in zip(self.profiles, fields["profiles"], strict=True):
            row["by_operator"], row["by_module"] = profile.by_operator(), profile.by_module()
        return fields


def speeds_of(timings: Timings, base: str) -> tuple[Speed, ...]:
    """The arms in the order in which they were given."""
    found = []
    for name, rounds in timings.samples.items():
        p50, p95, p99 = timings.percentiles(name)
        ratio = None if name == base else timings.ratio(name, base)
        every = tuple(one for part in timings.durations[name] for one in part)
        found.append(Speed(name, p50, p95, p99, ratio, rounds, every))
    return tuple(found)


def show_seconds(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
