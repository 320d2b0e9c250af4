"""A variant is judged on samples it was not made with, timed beside the float file, and weighed.

Time is taken in pairs (`bench.paired`): both files run in every round, so what else the machine does hits both. A
variant that is slower is asked why, by the runtime's own profile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from fairway.record.files import hash_file
from fairway.tune.bench.paired_timing import Arm, paired
from fairway.tune.bench.ratio import Ratio
from fairway.tune.quantize.error_metrics import Array, Feeds, ModelFunction, OwnMetric, Score, add_up, compare
from fairway.tune.quantize.schemes import Variant

if TYPE_CHECKING:
    from fairway.tune.quantize.sample_split import Sample

THREADS = 1
"""Two files are compared, not two ways to use a machine; `fairway bench` takes other numbers."""
CONVERTING = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast")


class Session:
    """One file in ONNX Runtime, with everything that it optimises."""

    def __init__(self, path: Path | bytes, threads: int = THREADS, profile: Path | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        model = path if isinstance(path, bytes) else str(path)
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]

    def __call__(self, feeds: Feeds) -> list[Array]:
        return [np.asarray(one) for one in self.session.run(None, dict(feeds))]

    def by_name(self, feeds: Feeds) -> dict[str, Array]:
        return dict(zip(self.names, self(feeds), strict=True))


@dataclass(frozen=True)
class Judged:
    """What is known of a variant."""

    variant: Variant
    sha256: str
    size: int
    size_share: float
    score: Score
    drop: float
    speed: Ratio | None
    why_slow: str = ""

    def as_dict(self) -> dict[str, Any]:
        speed = (
            None
            if self.speed is None
            else {
                "ratio": round(self.speed.value, 3),
                "low": round(self.speed.low, 3),
                "high": round(self.speed.high, 3),
                "said": str(self.speed),
            }
        )
        return {
            "scheme": self.variant.scheme,
            "sha256": self.sha256,
            "bytes": self.size,
            "size_share": round(self.size_share, 4),
            "drop": self.drop,
            "quality": self.score.as_dict(),
            "speed": speed,
            "why_slow": self.why_slow,
            "units_quantised": len(self.variant.quantised),
            "units_kept": [unit.name for unit in self.variant.kept],
            "weights_narrowed": self.variant.weights,
        }


class AccuracyJudge:
    """Holds the float file's answers, and compares variants with them."""

    def __init__(
        self,
        source: Path,
        held_back: Sequence[Sample],
        typical: Sample,
        metric: str,
        own: Callable[[ModelFunction], float] | None,
        seconds: float,
        folder: Path,
    ) -> None:
        self._float = Session(source)
        self._held_back = held_back
        self._typical = typical
        self.metric = metric
        self._seconds = seconds
        self._folder = folder
        self.size = file_size(source)
        self.answers = [self._float(sample) for sample in held_back]
        self.own = None if metric != "recipe" or own is None else OwnMetric(own, self._float.by_name)

    def look(self, variant: Variant, timed: bool = True) -> Judged:
        session = Session(variant.path)
        names = self._float.names
        score = add_up(
            compare(names, right, session(sample)) for right, sample in zip(self.answers, self._held_back, strict=True)
        )
        drop = score.drop(self.metric) if self.own is None else self.own.drop(session.by_name)
        speed = self._time(session) if timed else None
        why = self._why_slow(variant.path) if speed is not None and not speed.faster else ""
        size = file_size(variant.path)
        return Judged(variant, hash_file(variant.path), size, size / self.size, score, drop, speed, why)

    def _time(self, session: Session) -> Ratio:
        arms = [Arm("float", lambda: self._float(self._typical)), Arm("variant", lambda: session(self._typical))]
        return paired(arms, seconds=self._seconds).ratio("variant", "float")

    def _why_slow(self, path: Path) -> str:
        """Where the time goes: converting between floats and bytes, and what still computes in float."""
        by_operator = profile(path, self._typical, self._folder)
        total = sum(by_operator.values()) or 1.0
        converting = sum(t for op, t in by_operator.items() if op in CONVERTING)
        first = sorted(by_operator.items(), key=lambda one: -one[1])[:4]
        shown = ", ".join(f"{op} {t / total:.0%}" for op, t in first)
        return f"{converting / total:.0%} of its time goes into converting numbers; most goes into {shown}"


def file_size(path: Path) -> int:
    """The file with its data file."""
    data = path.with_name(path.name + ".data")
    return path.stat().st_size + (data.stat().st_size if data.exists() else 0)


def profile(path: Path, sample: Sample, folder: Path, runs: int = 20) -> dict[str, float]:
    """Microseconds by operator, over some runs after the first."""
    session = Session(path, profile=folder / "profile")
    for _ in range(runs):
        session(sample)
    written = Path(session.session.end_profiling())
    events = json.loads(written.read_text())
    written.unlink()
    found: dict[str, float] = {}
    for event in events:
        name = event.get("args", {}).get("op_name")
        if name and event.get("name", "").endswith("_kernel_time"):
            found[name] = found.get(name, 0.0) + event["dur"]
    return found
