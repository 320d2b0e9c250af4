"""Runs `fairway matrix` for the recipes below, and writes results.md and results.json. Needs uv and the network.

python benchmarks/matrix/run.py [--cache FOLDER]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

RUNS = (
    "examples/airimu/recipe.py:airimu --torch 2.9.1,2.13.0 --level quick",
    "examples/swipe/recipe.py:encoder --torch 2.9.1,2.13.0 --level quick",
    "benchmarks/matrix/recipe.py:text --torch 2.9.1,2.13.0 --transformers 4.53.0,5.22.2 --level quick",
)


def run(words: list[str]) -> str:
    command = [sys.executable, "-m", "fairway", "matrix", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        raise SystemExit(f"fairway matrix {' '.join(words)} ended with {done.returncode}")
    return done.stdout.rstrip()


def main() -> None:
    """Each is run once for the table; the second time, for JSON, its results are known already."""
    text, rows = ["# A recipe with other versions", "", "Written by benchmarks/matrix/run.py."], {}
    for line in RUNS:
        words = [*line.split(), *sys.argv[1:]]
        text += ["", "```text", f"fairway matrix {line}", "```", "", run(words)]
        rows[line] = json.loads(run([*words, "--json"]))
        (HERE / "results.md").write_text("\n".join(text) + "\n")
        (HERE / "results.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
