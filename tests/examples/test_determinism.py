"""The same subject, seed and versions give the same bytes and evidence: twice in one process, and in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SYSTEMS = {
    "airimu": ["airimu"],
    "swipe": ["encoder"],
    "heimdall": ["localization_tiny"],
    "qwen_vl": ["text_sdpa"],
    "plugin": ["net"],
}
"""One recipe of every system; benchmarks/determinism repeats every recipe there is."""


def run(folder: Path, times: int, recipes: list[str], hash_seed: str) -> list[dict[str, str]]:
    folder.mkdir()
    command = [sys.executable, ROOT / "tests/examples/repeated.py", folder, str(times), *recipes]
    done = subprocess.run(
        command, cwd=ROOT / "examples", capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_every_system_is_among_them() -> None:
    assert set(SYSTEMS) == {path.parent.name for path in (ROOT / "examples").glob("*/recipe.py")}


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_example_gives_the_same_bytes_and_evidence_each_time(system: str, tmp_path: Path) -> None:
    recipes = [f"{system}/recipe.py:{name}" for name in SYSTEMS[system]]
    here = run(tmp_path / "here", 2, recipes, "1")
    there = run(tmp_path / "there", 1, recipes, "2")
    first, second = here[::2], here[1::2]
    assert [row["recipe"] for row in first] == recipes
    for a, b, c in zip(first, second, there, strict=True):
        assert a["bytes"] == b["bytes"] == c["bytes"], a["recipe"]
        assert a["record"] == b["record"] == c["record"], a["recipe"]
