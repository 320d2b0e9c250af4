"""`fairway bench`: every arm runs in a separate process, and whatever happens to it is its row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairway.cli.bench import bench as command
from fairway.cli.bench import format_bench
from fairway.diagnostics import Finding
from fairway.diagnostics.errors import UserError
from fairway.judge.file_subject import build_file_subject
from fairway.model.onnx_file import open_header
from fairway.model.recipe import Overrides
from fairway.record.schema import Record
from fairway.record.schema_evidence import EvidenceRecord, SampleRecord
from fairway.record.schema_parts import SubjectRecord
from fairway.tune.bench import bench as module
from fairway.tune.bench.arm import ArmProcess, ArmProcessFailed
from fairway.tune.bench.bench import BenchRequest, run_bench
from fairway.tune.bench.points import write_points
from fairway.tune.bench.timing_chart import draw_timings
from fairway.workers.attempt import Limits
from fairway.workers.workshop import Janitor

Make = Callable[..., Path]
QUICK = BenchRequest(levels=("all",), threads=(1,), seconds=0.05, at=("batch=2",))

RECIPE = """
import torch, fairway
net = fairway.Recipe(model=lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval(),
                     inputs=["input: float32[batch, 64]"], bounds={"batch": (1, 4)})
"""


@pytest.fixture(autouse=True)
def _no_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)


def test_a_file_without_a_record_is_benched_and_said_to_be_unproven(make: Make) -> None:
    result = run_bench([make()], request=QUICK)
    assert result.files[0].verdict == "no record"
    lines = list(format_bench(result))
    assert "NOT VERIFIED: no record: nothing shows that it is right" in lines[0]
    assert "sizes by the file alone" in lines[1]
    (speed,) = result.points[0].speeds
    assert 0 < speed.p50 <= speed.p95 <= speed.p99
    assert speed.ratio is None
    (arm,) = result.arms
    assert arm.failure is None
    assert arm.ready_seconds is not None
    assert arm.ready_seconds > 0
    assert arm.peak_bytes is not None
    assert arm.before_bytes is not None
    assert 10e6 < arm.before_bytes < arm.peak_bytes < 400e6, "an arm of ONNX Runtime has no torch in its memory"


def test_the_profile_names_operators_and_modules_through_fusions(make: Make) -> None:
    (profile,) = run_bench([make(layers=3)], request=QUICK).profiles
    assert {cost.operator for cost in profile.costs} & {"MatMul", "FusedMatMul", "Relu"}
    assert {cost.module for cost in profile.costs if cost.operator == "MatMul"} == {"layers.0", "layers.1", "layers.2"}
    assert sum(cost.share for cost in profile.costs) == pytest.approx(1)
    assert all(cost.runs == 1 for cost in profile.costs)
    assert sum(profile.by_module().values()) == pytest.approx(sum(profile.by_operator().values()))


def test_pytorch_comes_first_and_ratios_are_to_it(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")  # compiling takes ten seconds, and is torch's matter
    (tmp_path / "recipe.py").write_text(RECIPE)
    result = run_bench([make(layers=1, name="input")], str(tmp_path / "recipe.py"), request=QUICK)
    assert [arm.name for arm in result.arms] == [
        "PyTorch eager, 1 thread",
        "torch.compile, 1 thread",
        "net.onnx, ONNX Runtime all, 1 thread",
    ]
    (at,) = result.points
    assert at.base == "PyTorch eager, 1 thread"
    assert [speed.ratio is None for speed in at.speeds] == [True, False, False]
    reported = result.as_dict()["points"][0]["speeds"][2]["ratio"]
    assert set(reported) == {"value", "low", "high", "differs", "text"}
    json.dumps(result.as_dict(), allow_nan=False)
    picture = draw_timings(result)
    assert picture.startswith("<svg")
    assert "torch.compile, 1 thread" in picture


def test_a_file_with_other_inputs_is_a_row(make: Make) -> None:
    result = run_bench([make("a.onnx"), make("b.onnx", name="y")], request=QUICK)
    assert [speed.arm for speed in result.points[0].speeds] == ["a.onnx, ONNX Runtime all, 1 thread"]
    assert "the file takes y" in result.points[0].failures["b.onnx, ONNX Runtime all, 1 thread"]


def test_files_of_one_name_are_told_apart(make: Make, tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        make(f"{folder}/net.onnx")
    result = run_bench([tmp_path / "a/net.onnx", tmp_path / "b/net.onnx"], request=QUICK)
    assert [arm.file for arm in result.arms] == ["a/net.onnx", "b/net.onnx"]


BAD_ENGINE = """
import os, sys, time
from fairway.tune.bench import arm_program
open_ort = arm_program.open_ort
def bad(job):
    make_call = open_ort(job)
    def make_bad_call(arrays):
        call = make_call(arrays)
        left = [{after}]
        def broken():
            left[0] -= 1
            if left[0] < 0: {deed}
            return call()
        return broken
    return make_bad_call
arm_program.ENGINES["ort"] = bad
arm_program.main()
"""


@pytest.mark.parametrize(
    ("deed", "after", "why"),
    [
        ("os.abort()", 0, "its process ended, signal 6"),
        ("os.abort()", 40, "its process ended, signal 6"),
        ("time.sleep(60)", 0, "no answer within 2 s"),
        ("raise ValueError('no such kernel')", 0, "ValueError: no such kernel"),
        ("sys.stderr.write('out of luck'); os._exit(3)", 0, "its process ended, exit code 3: out of luck"),
    ],
)
def test_an_arm_that_crashes_hangs_or_raises_is_a_row(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, after: int, why: str
) -> None:
    program = tmp_path / "bad.py"
    program.write_text(BAD_ENGINE.format(deed=deed, after=after))

    class Mixed(ArmProcess):
        def __init__(self, name: str, job: dict[str, object], limits: Limits, janitor: Janitor) -> None:
            self.program = (str(program),) if "bad.onnx" in name else ArmProcess.program
            super().__init__(name, job, limits, janitor)

    monkeypatch.setattr(module, "ArmProcess", Mixed)
    request = BenchRequest(("all",), (1,), ("batch=2", "batch=3"), 0.05, Limits(2.0))
    result = run_bench([make("good.onnx"), make("bad.onnx")], request=request)
    bad = "bad.onnx, ONNX Runtime all, 1 thread"
    for at in result.points:
        assert why in at.failures[bad]
        assert [speed.arm for speed in at.speeds] == ["good.onnx, ONNX Runtime all, 1 thread"]
    assert f"failed: {why}" in "\n".join(format_bench(result))


def test_an_arm_that_wants_too_much_memory_is_ended(make: Make, tmp_path: Path) -> None:
    program = tmp_path / "hungry.py"
    deed = "x = b'x' * 400_000_000; time.sleep(60)"
    program.write_text(BAD_ENGINE.format(deed=deed, after=0))
    subject = build_file_subject(open_header(make()), None, Overrides())
    write_points(subject, [{"batch": 2}], tmp_path, 0)
    job = {
        "engine": "ort",
        "path": str(tmp_path / "net.onnx"),
        "level": "all",
        "threads": 1,
        "names": ["x"],
        "dtypes": ["float32"],
        "points": str(tmp_path),
    }
    janitor = Janitor()

    class Hungry(ArmProcess):
        pass

    Hungry.program = (str(program),)
    arm = Hungry("hungry", job, Limits(30.0, 300_000_000), janitor)
    try:
        arm.open()
        with pytest.raises(ArmProcessFailed, match=r"used 0\.\d GB, more than the limit of 0\.3 GB"):
            arm.time(0, 1, 1)
        assert arm.is_gone
    finally:
        arm.close()
        janitor.dismiss()


@pytest.mark.parametrize(
    ("verdict", "changed", "said"),
    [
        ("wrong", False, "NOT VERIFIED: wrong for one fixed shape; 3 samples, level quick"),
        ("unproven", False, "NOT VERIFIED: unproven for one fixed shape; 3 samples, level quick"),
        ("verified", False, "verified for one fixed shape; 3 samples, level quick"),
        ("verified", True, "NOT VERIFIED: other bytes; the record is about another file"),
    ],
)
def test_what_the_record_says_stands_in_the_first_line(
    make: Make, monkeypatch: pytest.MonkeyPatch, verdict: str, changed: bool, said: str
) -> None:
    evidence = EvidenceRecord(level="quick", tested=(SampleRecord(),) * 3)
    subject = SubjectRecord(sha256="0" * 64, domain={})
    record = Record(format=2, subject=subject, versions={}, verdict=verdict, remedies=(), evidence=evidence)
    finding = Finding("FW116", "other bytes") if changed else None
    monkeypatch.setattr(module, "compare_with_record", lambda path: (record, finding))
    lines = list(format_bench(run_bench([make()], request=QUICK)))
    assert lines[0].split("net.onnx  ")[1] == said


def test_the_command_prints_json_and_draws(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make()
    code = command(
        [path], at=["batch=2"], levels="all,basic", threads="1", seconds=0.05, plot=tmp_path / "a.svg", json=True
    )
    assert code == 0
    reported = json.loads(capsys.readouterr().out)
    assert [row["arm"] for row in reported["points"][0]["speeds"]] == [
        "net.onnx, ONNX Runtime all, 1 thread",
        "net.onnx, ONNX Runtime basic, 1 thread",
    ]
    assert reported["points"][0]["speeds"][0]["durations"]
    assert reported["machine"]["versions"]["onnxruntime"]
    assert (tmp_path / "a.svg").read_text().endswith("</svg>\n")


def test_where_no_arm_runs_the_command_says_so_and_fails(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    assert command([make()], inputs=["other: float32[batch, 64]"], threads="1") == 1
    assert "failed: the file takes x; declared are other" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (BenchRequest(at=("batch=999",)), "FW023"),
        (BenchRequest(at=("time=3",)), "FW005"),
        (BenchRequest(at=("batch=x",)), "FW006"),
        (BenchRequest(levels=("fast",)), "FW006"),
        (BenchRequest(threads=(0,)), "FW006"),
        (BenchRequest(seconds=0), "FW006"),
    ],
)
def test_what_cannot_be_benched_is_refused_before_anything_runs(make: Make, asked: BenchRequest, code: str) -> None:
    with pytest.raises(UserError) as caught:
        run_bench([make()], request=asked)
    assert caught.value.finding.code == code


def test_a_file_that_is_no_onnx_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_text("hello")
    with pytest.raises(UserError) as caught:
        run_bench([tmp_path / "net.onnx"])
    assert caught.value.finding.code == "FW110"


def test_nothing_is_left_running_when_the_bench_is_killed(make: Make) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fairway", "bench", str(make()), "--seconds", "600", "--threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    arms: list[int] = []
    end = time.monotonic() + 60
    while not arms and time.monotonic() < end:
        time.sleep(0.2)
        arms = [pid for pid in _children(process.pid) if b"fairway.tune.bench.arm_program" in _words(pid)]
    assert arms
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(_words(pid) for pid in arms) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(_words(pid) for pid in arms)


def _children(pid: int) -> list[int]:
    try:
        return [int(item) for item in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ProcessLookupError):
        return b""


def test_this_file_leaves_no_process_behind() -> None:
    assert not [pid for pid in _children(os.getpid()) if b"fairway.tune.bench.arm_program" in _words(pid)]
