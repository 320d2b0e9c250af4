"""The adversary set tests itself: enough cases, and an oracle that can tell a wrong file from a right one."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "adversary"
COUNT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
from work import list_cases
print(*(len(list_cases(which)) for which in ("traps", "wrong", "right")))
"""
ORACLE = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
from files import make_wrong
from oracle import check_probes
from work import list_cases, make_probes
case = list_cases("wrong")["threshold half/>= for >"]
path = Path(sys.argv[2])
for mistaken in (case, replace(case, forward=None)):
    make_wrong(mistaken, path)
    print(bool(check_probes(path, case, make_probes(case))[0]), end=" ")
"""


def run_python(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_sets_are_large_enough():
    traps, wrong, right = map(int, run_python("-c", COUNT, str(FOLDER)).split()[-3:])
    assert traps >= 70
    assert wrong >= 220
    assert right >= 100


def test_the_oracle_tells_the_wrong_file_from_the_right(tmp_path):
    assert run_python("-c", ORACLE, str(FOLDER), str(tmp_path / "file.onnx")).split()[-2:] == ["True", "False"]


@pytest.mark.parametrize(
    ("which", "name"), [("traps", "VoiceGate"), ("wrong", "argmax/the last of equals"), ("right", "WhereGate/trace")]
)
def test_a_case_checks_itself_without_fairway(which, name):
    assert "0 errors of the set" in run_python(str(FOLDER / "run.py"), which, "--check", "--only", name)
