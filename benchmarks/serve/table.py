"""results.md from the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEAD = """# Serving

`python benchmarks/serve/run.py ratio`, `soak`, `mlserver`, then `write`. Two cores for clients, server and workers
together. `load` is the machine's load before the run, the run before it included. Only ratios of neighbors count.
"""


def write(rows: Path, target: Path) -> None:
    told = [json.loads(line) for line in rows.read_text().splitlines()]
    parts = [HEAD, *_ratio(told), *_soak(told), *_mlserver(told)]
    target.write_text("\n".join(parts) + "\n")


def _table(heads: str, rows: list[list[Any]]) -> list[str]:
    names = heads.split(", ")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def _ratio(told: list[dict[str, Any]]) -> list[str]:
    rows = [
        [
            one["model"],
            " ".join(f"{k}={v}" for k, v in one["sizes"].items()),
            one["loop"],
            one["server"],
            one["ratio"],
            f"{min(one['ratios'])}..{max(one['ratios'])}",
            one["p99_over_p50"],
            one["errors"],
            one["load"],
        ]
        for one in told
        if one["what"] == "ratio"
    ]
    heads = "model, a request, loop/s, server/s, ratio, of all rounds, p99/p50, errors, load"
    title = "## 8 clients against an onnxruntime loop with no server, raw tensors"
    return [title, "", *_table(heads, rows)] if rows else []


def _soak(told: list[dict[str, Any]]) -> list[str]:
    rows = [
        [
            one["model"],
            one["clients"],
            one["minutes"],
            one["requests"],
            one["rate"],
            one["p50"],
            one["p95"],
            one["p99"],
            one["errors"],
            one["load"],
        ]
        for one in told
        if one["what"] == "soak"
    ]
    heads = "model, clients, minutes, requests, requests/s, p50 ms, p95 ms, p99 ms, errors, load"
    return ["## Many clients for long, a sample each", "", *_table(heads, rows)] if rows else []


def _mlserver(told: list[dict[str, Any]]) -> list[str]:
    rows = [
        [one["model"], one["server"], one["rate"], one["p50"], one["p99"], one["errors"], one["load"]]
        for one in told
        if one["what"] == "mlserver"
    ]
    heads = "model, server, requests/s, p50 ms, p99 ms, errors, load"
    return ["## MLServer beside it, 8 clients, a sample each, JSON", "", *_table(heads, rows)] if rows else []
