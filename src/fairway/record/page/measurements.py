"""Read measurements of a file: the output of `fairway bench --json`, or the ranking of `fairway sensitivity`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.record.page.sanitize import (
    PageData,
    clean_name,
    clean_number,
    clean_text,
    clean_whole_number,
    keep_list,
    keep_object,
    keep_objects,
)
from fairway.record.reader import read_object

HISTOGRAM_BINS = 60
MAX_CALLS = 10**6
MAX_GROUPS = 5000
MAX_GROUP_NAMES = 20
HISTOGRAM_QUANTILE = 0.95
HISTOGRAM_MARGIN = 1.25
"""A histogram ends this much beyond that quantile of the slowest arm, so that one long pause does not squeeze it."""


def read_measurement(path: Path) -> tuple[str, PageData]:
    """Return "bench" or "sensitivity", and what is drawn of it. Raise FW006 if the file is neither."""
    data = read_object(path)
    if isinstance(data.get("ranking"), list):
        return "sensitivity", _summarize_sensitivity(data)
    if isinstance(data.get("arms"), list) and isinstance(data.get("points"), list):
        return "bench", _summarize_bench(data)
    todo = (
        "Give what `fairway bench MODEL.onnx --json` prints, or the ranking.json that `fairway sensitivity` writes.",
        "Give a record without --measured.",
    )
    raise complain(Code.UNKNOWN_OPTION, f"--measured {path.name}: expected a benchmark or a ranking", todo=todo)


def _summarize_sensitivity(data: Mapping[str, object]) -> PageData:
    rows = [
        {
            "group": clean_name(row.get("group")),
            "modules": [clean_name(module) for module in keep_list(row.get("modules"), MAX_GROUP_NAMES)],
            "operators": [clean_name(operator) for operator in keep_list(row.get("operators"), MAX_GROUP_NAMES)],
            "nodes": len(keep_list(row.get("nodes"), MAX_GROUPS)),
            "weights": clean_whole_number(row.get("weights")),
            "alone": clean_number(row.get("alone")),
            "alone_error": clean_number(row.get("alone_error")),
            "kept": clean_number(row.get("kept")),
            "samples": clean_whole_number(row.get("samples")),
        }
        for row in keep_objects(data.get("ranking"), MAX_GROUPS)
    ]
    return {
        "metric": clean_name(data.get("metric")),
        "finished": data.get("finished") is True,
        "all_quantized": clean_number(data.get("all_quantized")),
        "trials": clean_whole_number(data.get("trials")),
        "rows": sorted(rows, key=lambda row: -(clean_number(row["alone"]) or 0.0)),
    }


def _summarize_bench(data: Mapping[str, object]) -> PageData:
    machine = keep_object(data.get("machine"))
    return {
        "files": [
            {key: clean_name(file.get(key)) for key in ("path", "verdict", "about")}
            for file in keep_objects(data.get("files"))
        ],
        "arms": [
            {
                **{key: clean_name(arm.get(key)) for key in ("name", "engine", "level")},
                **{
                    key: clean_number(arm.get(key))
                    for key in ("threads", "ready_seconds", "peak_bytes", "before_bytes")
                },
                "failure": clean_text(arm.get("failure")),
            }
            for arm in keep_objects(data.get("arms"))
        ],
        "points": [_summarize_point(point) for point in keep_objects(data.get("points"))],
        "machine": {
            clean_name(key): clean_name(value) for key, value in machine.items() if isinstance(value, str | int | float)
        },
    }


def _summarize_point(point: Mapping[str, object]) -> PageData:
    speeds = keep_objects(point.get("speeds"))
    series = [_read_durations(speed) for speed in speeds]
    low = min((min(durations) for durations in series if durations), default=0.0)
    high = HISTOGRAM_MARGIN * max((_find_quantile(durations) for durations in series if durations), default=0.0)
    sizes = [f"{clean_name(key)}={clean_whole_number(size)}" for key, size in keep_object(point.get("point")).items()]
    return {
        "point": ", ".join(sizes) or "the fixed shape",
        "base": clean_name(point.get("base")),
        "low": low,
        "high": high,
        "speeds": [
            {
                "arm": clean_name(speed.get("arm")),
                **{key: clean_number(speed.get(key)) for key in ("p50", "p95", "p99")},
                "ratio": clean_name(keep_object(speed.get("ratio")).get("text")),
                "bins": count_bins(durations, low, high),
                "calls": len(durations),
            }
            for speed, durations in zip(speeds, series, strict=True)
        ],
        "failures": {clean_name(key): clean_text(value) for key, value in keep_object(point.get("failures")).items()},
    }


def _read_durations(speed: Mapping[str, object]) -> list[float]:
    numbers = [clean_number(duration) for duration in keep_list(speed.get("durations"), MAX_CALLS)]
    return [number for number in numbers if number is not None and number > 0]


def _find_quantile(durations: Sequence[float]) -> float:
    return sorted(durations)[int(HISTOGRAM_QUANTILE * (len(durations) - 1))]


def count_bins(durations: Sequence[float], low: float, high: float) -> list[int]:
    """Return how many calls fall into each bin between `low` and `high`. The bins have equal ratios."""
    counts = [0] * HISTOGRAM_BINS
    if low <= 0 or high <= low:
        return counts
    scale = HISTOGRAM_BINS / math.log(high / low)
    for duration in durations:
        if duration <= high:
            counts[min(HISTOGRAM_BINS - 1, int(math.log(duration / low) * scale))] += 1
    return counts
