"""Compare the speed of two files: both run in separate processes, round by round, at several points."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fairway.model.dims import Point, describe_point
from fairway.model.subject import Subject
from fairway.tune.bench.arm import ArmProcess, ArmProcessFailed
from fairway.tune.bench.paired_timing import time_in_rounds
from fairway.tune.bench.ratio import Ratio
from fairway.workers.attempt import Limits
from fairway.workers.workshop import Janitor

MAX_SLOWDOWN_SHARE = 0.05
"""A file that is wanted for its size may be slower by this share."""


@dataclass(frozen=True)
class Speeds:
    """The speed of one file relative to another, at each point."""

    points: tuple[tuple[Point, Ratio], ...]

    @property
    def is_faster(self) -> bool:
        """True if the file is certainly faster at some point and certainly slower at none."""
        return any(ratio.is_faster for _, ratio in self.points) and not self.is_slower

    @property
    def is_slower(self) -> bool:
        return any(ratio.is_slower for _, ratio in self.points)

    def is_worthwhile(self, smaller: bool) -> bool:
        """Return whether the other file is worth it: it is faster, or it is `smaller` and at most slightly slower."""
        return self.is_faster or (smaller and all(ratio.high >= 1 - MAX_SLOWDOWN_SHARE for _, ratio in self.points))

    def __str__(self) -> str:
        return "; ".join(f"{ratio} at {describe_point(point)}" for point, ratio in self.points)

    def as_list(self) -> list[dict[str, object]]:
        return [{"point": dict(point), **ratio.as_dict()} for point, ratio in self.points]


@dataclass(frozen=True)
class Race:
    """The setup for comparing files: folder of inputs, points, duration, number of threads."""

    subject: Subject
    points: tuple[Point, ...]
    folder: Path
    seconds: float
    threads: int
    limits: Limits
    janitor: Janitor

    def find_failure(self, path: Path) -> str | None:
        """Return why the file does not run at some point, or None if it runs at all of them."""
        arm = ArmProcess(path.name, self._make_job(path), self.limits, self.janitor)
        where = "when it is opened"
        try:
            arm.open()
            for number, point in enumerate(self.points):
                where = f"at {describe_point(point)}"
                arm.time(number, 1, 1)
        except ArmProcessFailed as error:
            return f"{where}: {error}"
        finally:
            arm.close()
        return None

    def compare(self, base: Path, other: Path, seed: int) -> Speeds:
        """Time `other` against `base`, both with ONNX Runtime's defaults; may raise ArmProcessFailed or ArmFailed."""
        with ExitStack() as stack:
            arms = []
            for name, path in (("base", base), ("other", other)):
                arms.append(ArmProcess(name, self._make_job(path), self.limits, self.janitor))
                stack.callback(arms[-1].close)
                arms[-1].open()
            speeds = []
            for number, point in enumerate(self.points):
                timings = time_in_rounds([arm.make_arm(number) for arm in arms], seconds=self.seconds, seed=seed)
                speeds.append((point, timings.ratio("other", "base")))
        return Speeds(tuple(speeds))

    def _make_job(self, path: Path) -> dict[str, object]:
        names: Sequence[str] = self.subject.input_names
        return {
            "engine": "ort",
            "path": str(path.absolute()),
            "level": "all",
            "threads": self.threads,
            "names": list(names),
            "dtypes": [s.dtype for s in self.subject.spec],
            "points": str(self.folder),
        }
