"""Fifty random models: nothing verified is wrong, nothing called wrong is right, by an oracle in plain numpy.

The thousand are in benchmarks/random_models; a separate process keeps torch warm and forks once for each seed.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "random_models" / "run.py"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("random") / "rows.jsonl"
    command = [sys.executable, str(RUN), "--count", "50", "--seed", "5000", "--level", "quick", "--rows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert path.exists(), done.stderr
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_every_seed_was_judged_and_the_generator_agrees_with_eager_torch(rows):
    assert [row["seed"] for row in rows] == list(range(5000, 5050))
    assert [row for row in rows if row["outcome"] in ("generator at fault", "crashed")] == []


@pytest.mark.slow
def test_nothing_verified_is_wrong(rows):
    assert [(row["seed"], row["oracle"]) for row in rows if row["outcome"] == "verified, WRONG"] == []


@pytest.mark.slow
def test_nothing_called_wrong_is_right(rows):
    assert [(row["seed"], row["findings"]) for row in rows if row["outcome"] == "wrong, RIGHT"] == []


@pytest.mark.slow
def test_most_are_verified(rows):
    assert sum(row["outcome"] == "verified, right" for row in rows) >= 30
