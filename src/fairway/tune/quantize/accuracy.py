"""Judge a variant on samples it was not made with, compare its speed with the float file, and measure its size.

Both files run in every round of `bench.paired_timing`, so that other load on the machine affects both. If a variant is
slower, ONNX Runtime's profile tells why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairway.model.ort_session import SessionSettings, open_session
from fairway.record.files import hash_file
from fairway.record.schema_tuning import SpeedRecord, VariantRecord
from fairway.tune.bench.paired_timing import Arm, time_in_rounds
from fairway.tune.bench.ratio import Ratio
from fairway.tune.quantize.error_metrics import (
    Array,
    Feeds,
    ModelFunction,
    RecipeMetric,
    Score,
    add_scores,
    score_outputs,
)
from fairway.tune.quantize.schemes import Variant

if TYPE_CHECKING:
    from fairway.tune.quantize.sample_split import InputArrays, SampleSplit

TIMING_THREADS = 1
"""Two files are compared, not two ways to use a machine; `fairway bench` supports other numbers."""
CONVERSION_OPERATORS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast")


class OrtFile:
    """One file in ONNX Runtime, with all optimizations."""

    def __init__(self, path: Path | bytes, threads: int = TIMING_THREADS, profile: Path | None = None) -> None:
        profile_prefix = None if profile is None else str(profile)
        self.session = open_session(path, SessionSettings(threads, profile_prefix=profile_prefix))
        self.names = [o.name for o in self.session.get_outputs()]

    def __call__(self, feeds: Feeds) -> list[Array]:
        return [np.asarray(output) for output in self.session.run(None, dict(feeds))]

    def run_by_name(self, feeds: Feeds) -> dict[str, Array]:
        return dict(zip(self.names, self(feeds), strict=True))


@dataclass(frozen=True)
class JudgedVariant:
    """A variant with its measured quality, size and speed."""

    variant: Variant
    sha256: str
    size: int
    size_share: float
    score: Score
    drop: float
    speed: Ratio | None
    why_slow: str = ""

    def describe(self) -> VariantRecord:
        """Return the variant for the record."""
        speed = None
        if self.speed is not None:
            ratio, low, high = (round(value, 3) for value in (self.speed.value, self.speed.low, self.speed.high))
            speed = SpeedRecord(ratio=ratio, low=low, high=high, said=str(self.speed))
        return VariantRecord(
            scheme=self.variant.scheme,
            sha256=self.sha256,
            bytes=self.size,
            size_share=round(self.size_share, 4),
            drop=self.drop,
            quality=self.score.as_dict(),
            speed=speed,
            why_slow=self.why_slow,
            units_quantized=len(self.variant.quantized),
            units_kept=tuple(unit.name for unit in self.variant.kept),
            weights_narrowed=self.variant.weights,
        )


class AccuracyJudge:
    """Compares variants with the float file on held-back samples."""

    def __init__(
        self,
        source: Path,
        samples: SampleSplit,
        metric: str,
        recipe_function: Callable[[ModelFunction], float] | None,
        seconds: float,
        folder: Path,
    ) -> None:
        self._float = OrtFile(source)
        self._held_back = samples.held_back
        self._typical = samples.typical
        self.metric = metric
        self._seconds = seconds
        self._folder = folder
        self.size = measure_file_size(source)
        self.float_outputs = [self._float(sample) for sample in samples.held_back]
        self.recipe_metric: RecipeMetric | None = None
        if metric == "recipe" and recipe_function is not None:
            self.recipe_metric = RecipeMetric(recipe_function, self._float.run_by_name)

    def judge(self, variant: Variant, timed: bool = True) -> JudgedVariant:
        """Measure the quality, size and speed of a variant."""
        session = OrtFile(variant.path)
        names = self._float.names
        score = add_scores(
            score_outputs(names, expected, session(sample))
            for expected, sample in zip(self.float_outputs, self._held_back, strict=True)
        )
        if self.recipe_metric is None:
            drop = score.compute_drop(self.metric)
        else:
            drop = self.recipe_metric.compute_drop(session.run_by_name)
        speed = self._time(session) if timed else None
        reason = self._explain_slowness(variant.path) if speed is not None and not speed.is_faster else ""
        size = measure_file_size(variant.path)
        return JudgedVariant(variant, hash_file(variant.path), size, size / self.size, score, drop, speed, reason)

    def _time(self, session: OrtFile) -> Ratio:
        arms = [Arm("float", lambda: self._float(self._typical)), Arm("variant", lambda: session(self._typical))]
        return time_in_rounds(arms, seconds=self._seconds).ratio("variant", "float")

    def _explain_slowness(self, path: Path) -> str:
        """Describe where the time goes: converting between floats and bytes, and operators that still compute in
        float.
        """
        by_operator = profile_operators(path, self._typical, self._folder)
        total = sum(by_operator.values()) or 1.0
        converting = sum(t for op, t in by_operator.items() if op in CONVERSION_OPERATORS)
        slowest = sorted(by_operator.items(), key=lambda item: -item[1])[:4]
        shown = ", ".join(f"{op} {t / total:.0%}" for op, t in slowest)
        return f"{converting / total:.0%} of its time goes into converting numbers; the slowest operators are {shown}"


def measure_file_size(path: Path) -> int:
    """Return the size of a file with its data file, in bytes."""
    data = path.with_name(path.name + ".data")
    return path.stat().st_size + (data.stat().st_size if data.exists() else 0)


def profile_operators(path: Path, sample: InputArrays, folder: Path, runs: int = 20) -> dict[str, float]:
    """Return microseconds by operator, summed over all runs."""
    session = OrtFile(path, profile=folder / "profile")
    for _ in range(runs):
        session(sample)
    events_file = Path(session.session.end_profiling())
    events = json.loads(events_file.read_text())
    events_file.unlink()
    durations: dict[str, float] = {}
    for event in events:
        name = event.get("args", {}).get("op_name")
        if name and event.get("name", "").endswith("_kernel_time"):
            durations[name] = durations.get(name, 0.0) + event["dur"]
    return durations
