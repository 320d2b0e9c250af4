"""The result of a bench, as plain data for the command line and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairway.tune.bench.paired_timing import Timings
from fairway.tune.bench.profile import Profile
from fairway.tune.bench.ratio import Ratio


@dataclass(frozen=True)
class FileNote:
    """A file that was timed, and its verdict."""

    path: str
    bytes: int
    """Including external weights."""
    verdict: str
    """The record's verdict, or `no record`, or `changed` if the record is about other bytes."""
    about: str
    """The same in a line for the user."""

    @property
    def is_verified(self) -> bool:
        return self.verdict == "verified"


@dataclass(frozen=True)
class ArmRow:
    """One arm, and the time and memory it needed in its own process."""

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
    """Memory before anything was opened: Python and the engine's libraries."""
    failure: str | None = None
    """The reason if it has no numbers, or not at every point."""

    @property
    def ready_seconds(self) -> float | None:
        """Seconds until the first result."""
        if self.open_seconds is None or self.first_seconds is None:
            return None
        return self.open_seconds + self.first_seconds


@dataclass(frozen=True)
class ArmSpeed:
    """One arm at one point, in seconds for a call."""

    arm: str
    p50: float
    p95: float
    p99: float
    ratio: Ratio | None
    """The speed relative to the first arm, above 1 if faster; None for that arm itself."""
    rounds: tuple[float, ...]
    """The median of each round. The same index is the same round for all arms."""
    durations: tuple[float, ...]
    """Every duration that was measured."""


@dataclass(frozen=True)
class PointTimings:
    """All arms at one point."""

    point: Mapping[str, int]
    base: str
    speeds: tuple[ArmSpeed, ...]
    failures: Mapping[str, str] = field(default_factory=dict)
    """Arms without numbers at this point, with the reason."""


@dataclass(frozen=True)
class BenchResult:
    """Everything measured, and the conditions."""

    files: tuple[FileNote, ...]
    arms: tuple[ArmRow, ...]
    points: tuple[PointTimings, ...]
    profiles: tuple[Profile, ...]
    sizes_from: str
    """The source of the sizes: the recipe, a record, or the file alone."""
    seconds: float
    seed: int
    machine: Mapping[str, Any]

    @property
    def has_timings(self) -> bool:
        return any(at.speeds for at in self.points)

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON. Ratios also have their text."""
        fields = asdict(self)
        for at, point_fields in zip(self.points, fields["points"], strict=True):
            for speed, row in zip(at.speeds, point_fields["speeds"], strict=True):
                if speed.ratio is not None:
                    row["ratio"] = speed.ratio.as_dict()
        for arm, row in zip(self.arms, fields["arms"], strict=True):
            row["ready_seconds"] = arm.ready_seconds
        for profile, row in zip(self.profiles, fields["profiles"], strict=True):
            row["by_operator"], row["by_module"] = profile.by_operator(), profile.by_module()
        return fields


def summarize_timings(timings: Timings, base: str) -> tuple[ArmSpeed, ...]:
    """Return the speed of each arm, in the order of the timings."""
    speeds = []
    for name, rounds in timings.samples.items():
        p50, p95, p99 = timings.percentiles(name)
        ratio = None if name == base else timings.ratio(name, base)
        durations = tuple(duration for round_ in timings.durations[name] for duration in round_)
        speeds.append(ArmSpeed(name, p50, p95, p99, ratio, rounds, durations))
    return tuple(speeds)


def format_seconds(seconds: float) -> str:
    """Format with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
