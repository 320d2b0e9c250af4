"""The benchmark of real sizes, run on tiny configs: planted errors are proven, repeatable and refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "real_sizes"

DRAW = """
import json, sys, hashlib
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import plant
right = Path(sys.argv[2]) / "bert.onnx"
model = plant.RECIPES["bert"].model()
plant.export_stock("bert", model, right)
planter = plant.Planter("bert", model, right)
known, rows = set(), []
for number in [*range(1, 17), 3]:
    planted = planter.draw(number, set() if len(rows) == 16 else known)
    known.add((planted.kind, planted.place))
    size, digest = planted.path.stat().st_size, hashlib.sha256(planted.path.read_bytes()).hexdigest()
    rows.append({"kind": planted.kind, "place": planted.place, "times": planted.times, "size": size, "digest": digest})
print(json.dumps({"rows": rows, "data": right.with_name("bert.onnx.data").stat().st_size}))
"""


def run_script(*arguments: str) -> str:
    environment = {"REAL_SIZES_TINY": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=900, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return json.loads(run_script("-c", DRAW, str(FOLDER), str(tmp_path_factory.mktemp("drawn"))).splitlines()[-1])


@pytest.mark.slow
def test_every_planted_error_exceeds_rounding_ten_times(drawn):
    assert [row for row in drawn["rows"] if row["times"] < 10] == []


@pytest.mark.slow
def test_sixteen_draws_give_many_kinds_and_no_place_twice(drawn):
    places = [(row["kind"], row["place"]) for row in drawn["rows"][:16]]
    assert len(set(places)) == 16
    assert len({kind for kind, _ in places}) >= 10


@pytest.mark.slow
def test_a_number_gives_the_same_file_again(drawn):
    assert drawn["rows"][16] == drawn["rows"][2]


@pytest.mark.slow
def test_planted_files_leave_the_weights_in_the_shared_data(drawn):
    smallest = min(row["size"] for row in drawn["rows"])
    assert max(row["size"] for row in drawn["rows"]) < smallest + drawn["data"] / 2  # the largest tensor is a quarter


@pytest.mark.slow
def test_the_right_file_is_verified_and_planted_ones_are_refused(tmp_path):
    run_script(
        str(FOLDER / "run.py"),
        "plant",
        "--tiny",
        str(tmp_path),
        "--only",
        "vit",
        "--count",
        "4",
        "--check-every",
        "4",
        "--write",
    )
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["verdict"] for row in rows] == [*["wrong"] * 4, "verified"]
    assert [row["plain"] for row in rows if "plain" in row] == ["wrong"]
    assert "| vit | 4 | 4 | 2 | 0 | 0 | verified | 1 of 1 |" in (tmp_path / "results.md").read_text()


def test_the_table_counts_unproven_apart_and_names_survivors():
    rows = [
        {"what": "time", "model": "bert", "way": way, "round": 1, "wall_seconds": wall, "cpu_seconds": 9, "peak_mb": 7}
        | {"verdict": "verified", "samples": 50, "excused": 2, "worst_of_allowed": 0.5}
        for way, wall in (("stock", 10.0), ("quick", 20.0), ("standard", 55.0))
    ]
    for number, verdict in enumerate(("verified", "wrong", "unproven", "verified", "refused")):
        row = {"what": "plant", "model": "bert", "number": number, "kind": "bias dropped", "place": f"bias {number}"}
        rows.append(row | {"times": 12.0 + number, "verdict": verdict, "seconds": 3.0})
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import table; print(table.make_table(json.load(sys.stdin)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(FOLDER)], input=json.dumps(rows), capture_output=True, text=True, check=True
    )
    assert "| 20 | 2.0 | 7 | 55 | 5.5 | 7 | verified | 50 | 2 | 0.5 |" in done.stdout
    assert "| bert | 4 | 2 | 0 | 1 | 1 | verified | 0 of 0 | 3 |" in done.stdout
    assert "| bert | 3 | bias dropped | bias 3 | 15 | verified |" in done.stdout
    assert "bias 4" not in done.stdout


def test_a_round_that_was_interrupted_is_timed_as_a_whole():
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import run
run.time_once = lambda name, way: {}
known = [{"what": "time", "model": "bert", "way": way, "round": 1} for way in run.WAYS]
known.append({"what": "time", "model": "bert", "way": "stock", "round": 2})
rows = run.time_models(["bert"], list(run.WAYS), 2, known, False)
print(json.dumps([(row["round"], row["way"]) for row in rows]))
"""
    rows = json.loads(run_script("-c", script, str(FOLDER)))
    assert rows == [[2, "quick"], [2, "standard"], [2, "stock"]]


def test_a_record_is_summarized_with_its_excuses():
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import run
tested = [{"ratio": 0.5, "note": ""}, {"ratio": 9.0, "note": "(excused: order)"}, {"ratio": None, "excused": "ties"}]
print(json.dumps(run.summarize_record({"verdict": "verified", "evidence": {"tested": tested}})))
"""
    summary = json.loads(run_script("-c", script, str(FOLDER)))
    assert summary == {"verdict": "verified", "samples": 3, "excused": 2, "worst_of_allowed": 9.0, "spent": {}}
