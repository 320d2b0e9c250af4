"""Correct files on which a naive comparison stumbles are verified. The 300 and more are in benchmarks/false_alarms."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "false_alarms" / "run.py"

CASES = (
    "topk_places_whole/trace/none",
    "sort_places_tied/trace/float32",
    "sigmoid_saturated/trace/float32",
    "cumsum_long/trace/float32",
    "logsumexp_large/trace/float32",
    "masked_rows/trace/float32",
    "exp_overflow/trace/float16",
    "denormal/trace/float32",
    "wraps_int32/trace/none",
    "empty_cat/trace/float32",
    "stored_bfloat16/trace/float32",
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("alarms") / "rows.jsonl"
    command = [sys.executable, str(RUN), "--only", *CASES, "--levels", "standard", "--rows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert path.exists(), done.stderr
    return {row["case"]: row for row in map(json.loads, path.read_text().splitlines())}


@pytest.mark.parametrize("case", CASES)
def test_a_correct_file_is_verified(rows, case):
    tied = "which of equal elements" in rows[case].get("why", "")
    assert rows[case]["outcome"] in ("verified", *(("unproven by excuses",) if tied else ())), rows[case]
