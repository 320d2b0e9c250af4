"""What other commands measured of a file: `fairway bench --json`, and the ranking that `fairway sensitivity` writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairway.diagnostics.errors import complain
from fairway.record.page.sanitize import fields, items, name, number, objects, text, whole
from fairway.record.reader import read_object

BINS = 60
CALLS, GROUPS = 10**6, 5000
FAR, BEYOND = 0.95, 1.25
"""A histogram ends a little beyond this share of the slowest arm's calls; a hiccup would squeeze others together."""


def read_measured(path: Path) -> tuple[str, dict[str, Any]]:
    """Which of the two it is, and what is drawn of it; FW006 where it is neither."""
    found = read_object(path)
    if isinstance(found.get("ranking"), list):
        return "sensitivity", _sensitivity(found)
    if isinstance(found.get("arms"), list) and isinstance(found.get("points"), list):
        return "bench", _bench(found)
    todo = (
        "Give what `fairway bench MODEL.onnx --json` prints, or the ranking.json that `fairway sensitivity` writes.",
        "A record is named without --with.",
    )
    raise complain("FW006", f"--with {path.name}: neither a benchmark nor a ranking", todo=todo)


def _sensitivity(found: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        {
            "group": name(one.get("group")),
            "modules": [name(module) for module in items(one.get("modules"))[:20]],
            "operators": [name(operator) for operator in items(one.get("operators"))[:20]],
            "nodes": len(items(one.get("nodes"), GROUPS)),
            "weights": whole(one.get("weights")),
            **{key: number(one.get(key)) for key in ("alone", "alone_error", "kept")},
            "samples": whole(one.get("samples")),
        }
        for one in objects(found.get("ranking"), GROUPS)
    ]
    return {
        "metric": name(found.get("metric")),
        "finished": found.get("finished") is True,
        "all_quantised": number(found.get("all_quantised")),
        "trials": whole(found.get("trials")),
        "rows": sorted(rows, key=lambda row: -(row["alone"] or 0.0)),
    }


def _bench(found: Mapping[str, Any]) -> dict[str, Any]:
    machine = fields(found.get("machine"))
    return {
        "files": [
            {key: name(one.get(key)) for key in ("path", "verdict", "about")} for one in objects(found.get("files"))
        ],
        "arms": [
            {
                **{key: name(one.get(key)) for key in ("name", "engine", "level")},
                **{key: number(one.get(key)) for key in ("threads", "ready_seconds", "peak_bytes", "before_bytes")},
                "failure": text(one.get("failure")),
            }
            for one in objects(found.get("arms"))
        ],
        "points": [_at(one) for one in objects(found.get("points"))],
        "machine": {name(key): name(value) for key, value in machine.items() if isinstance(value, str | int | float)},
    }


def _at(one: Mapping[str, Any]) -> dict[str, Any]:
    speeds = objects(one.get("speeds"))
    given = [[number(d) for d in items(speed.get("durations"), CALLS)] for speed in speeds]
    series = [[one for one in durations if one is not None and one > 0] for durations in given]
    low = min((min(s) for s in series if s), default=0.0)
    high = BEYOND * max((sorted(s)[int(FAR * (len(s) - 1))] for s in series if s), default=0.0)
    sizes = [f"{name(key)}={whole(size)}" for key, size in fields(one.get("point")).items()]
    return {
        "point": ", ".join(sizes) or "the fixed shape",
        "base": name(one.get("base")),
        "low": low,
        "high": high,
        "speeds": [
            {
                "arm": name(speed.get("arm")),
                **{key: number(speed.get(key)) for key in ("p50", "p95", "p99")},
                "ratio": name(fields(speed.get("ratio")).get("text")),
                "bins": bins(durations, low, high),
                "calls": len(durations),
            }
            for speed, durations in zip(speeds, series, strict=True)
        ],
        "failures": {name(key): text(value) for key, value in fields(one.get("failures")).items()},
    }


def bins(durations: list[float | int], low: float, high: float) -> list[int]:
    """How many calls took how long, between the ends, in steps of equal ratio."""
    counts = [0] * BINS
    if low <= 0 or high <= low:
        return counts
    scale = BINS / math.log(high / low)
    for one in durations:
        if one <= high:
            counts[min(BINS - 1, int(math.log(one / low) * scale))] += 1
    return counts
