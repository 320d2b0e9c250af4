"""Measure the cost of a verdict in units of one bare export: `python benchmarks/speed/run.py [--rounds N] [NAME…]`.

For each model a bare `torch.onnx.export(dynamo=True)` and `fairway export` at both levels run one after the other, each
in a fresh process with its imports, `N` times over; wall times are compared within a round, so that a slow minute of
the machine hits all three alike. Writes results.json and prints a table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
FAIRWAY = [sys.executable, "-m", "fairway"]
LEVELS = ("quick", "standard")


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    spent = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return spent


def once(name: str, folder: str) -> dict[str, float]:
    out = f"{folder}/{name}.onnx"
    found = {"bare": seconds([sys.executable, str(HERE / "bare.py"), name, out])}
    for level in LEVELS:
        recipe = f"{HERE / 'models.py'}:{name}"
        found[level] = seconds(
            [*FAIRWAY, "export", recipe, "-o", out, "--overwrite", "--level", level, "--route", "export-dynamic"]
        )
    return found


def help_ratio() -> dict[str, float]:
    """`fairway --help` against `import torch`, five times each, taken in turn."""
    pairs = [(seconds([*FAIRWAY, "--help"]), seconds([sys.executable, "-c", "import torch"])) for _ in range(5)]
    return {"median": statistics.median(a / b for a, b in pairs), "worst": max(a / b for a, b in pairs)}


def main() -> None:
    sys.path.insert(0, str(HERE))
    from models import MODELS

    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("names", nargs="*", default=[])
    asked = parser.parse_args()
    names = asked.names or list(MODELS)
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            rounds = [once(name, folder) for _ in range(asked.rounds)]
            ratios = {level: sorted(r[level] / r["bare"] for r in rounds) for level in LEVELS}
            rows[name] = {"bare_seconds": [round(r["bare"], 2) for r in rounds]} | {
                level: [round(x, 3) for x in ratios[level]] for level in LEVELS
            }
            shown = "  ".join(f"{level} {statistics.median(ratios[level]):.2f}×" for level in LEVELS)
            print(f"{name:<12} bare {statistics.median(r['bare'] for r in rounds):5.1f} s  {shown}", flush=True)
    medians = {
        level: round(statistics.median(statistics.median(row[level]) for row in rows.values()), 3) for level in LEVELS
    }
    result = {"rounds": asked.rounds, "median_over_models": medians, "help": help_ratio(), "models": rows}
    print(json.dumps({k: v for k, v in result.items() if k != "models"}, indent=1))
    if not asked.names:
        (HERE / "results.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
