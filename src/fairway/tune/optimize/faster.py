"""Is one file faster than another? Both in processes of their own, round by round, at several points."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.model.dims import Point, show
from fairway.model.subject import Subject
from fairway.tune.bench.arm import Apart, Failed
from fairway.tune.bench.paired_timing import paired
from fairway.tune.bench.ratio import Ratio
from fairway.workers.attempt import Limits
from fairway.workers.staging import Janitor

HARDLY = 0.05
"""By which share a file may be slower that is wanted for its size."""


@dataclass(frozen=True)
class Speeds:
    """How many times faster, at each point."""

    points: tuple[tuple[Point, Ratio], ...]

    @property
    def faster(self) -> bool:
        """At some point for certain, and at none slower for certain."""
        return any(ratio.faster for _, ratio in self.points) and not self.slower

    @property
    def slower(self) -> bool:
        return any(ratio.slower for _, ratio in self.points)

    def help(self, smaller: bool) -> bool:
        """Whether the other file is worth it: for its speed, or where it is `smaller` and at most hardly slower."""
        return self.faster or (smaller and all(ratio.high >= 1 - HARDLY for _, ratio in self.points))

    def __str__(self) -> str:
        return "; ".join(f"{ratio} at {show(point)}" for point, ratio in self.points)

    def as_list(self) -> list[dict[str, Any]]:
        return [{"point": dict(point), **ratio.as_dict()} for point, ratio in self.points]


@dataclass(frozen=True)
class Race:
    """Where files run against each other: the inputs' folder, the points, how long, how many threads."""

    subject: Subject
    points: tuple[Point, ...]
    folder: Path
    seconds: float
    threads: int
    limits: Limits
    janitor: Janitor

    def check(self, path: Path) -> str | None:
        """Why the file does not run at some point; None where it runs at all of them."""
        arm = Apart(path.name, self._job(path), self.limits, self.janitor)
        where = "when it is opened"
        try:
            arm.open()
            for number, point in enumerate(self.points):
                where = f"at {show(point)}"
                arm.time(number, 1, 1)
        except Failed as error:
            return f"{where}: {error}"
        finally:
            arm.close()
        return None

    def run(self, base: Path, other: Path, seed: int) -> Speeds:
        """`other` beside `base`, both as ONNX Runtime runs them unless told otherwise. Raises Failed or ArmFailed."""
        with ExitStack() as stack:
            arms = []
            for name, path in (("base", base), ("other", other)):
                arms.append(Apart(name, self._job(path), self.limits, self.janitor))
                stack.callback(arms[-1].close)
                arms[-1].open()
            found = []
            for number, point in enumerate(self.points):
                timings = paired([arm.arm(number) for arm in arms], seconds=self.seconds, seed=seed)
                found.append((point, timings.ratio("other", "base")))
        return Speeds(tuple(found))

    def _job(self, path: Path) -> dict[str, Any]:
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
