"""From failing models to standalone scripts that fail in the same way. The how-to covers a missing translation."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairway.convert.export import preload_modules
from fairway.debug.reduce import best_so_far as keep
from fairway.debug.reduce import reduce as module
from fairway.debug.reduce import trial_export as trial
from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.failure import find_failure
from fairway.debug.reduce.issue_report import ReduceResult
from fairway.debug.reduce.last_checks import TimeBudget, rule_out
from fairway.debug.reduce.recorded_model import check_faithful
from fairway.debug.reduce.reduce import ReduceSettings, reduce_subject
from fairway.diagnostics.errors import UserError
from fairway.model.subject import Subject, build_subject


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.linear(x))


class Decides(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        if x.mean() > 0:
            x = x * 2
        return x


class Divides(Block):
    """dynamo=False rounds // towards zero: pytorch/pytorch#78442."""

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return x + ((x * 9).long() // 4).float()


class Net(nn.Module):
    def __init__(self, odd: type[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), odd()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.softmax(-1)


@pytest.fixture(autouse=True)
def _warm() -> None:
    preload_modules()


def subject_of(odd: type[nn.Module]) -> Subject:
    torch.manual_seed(0)
    return build_subject(Net(odd).eval(), ["x: float32[batch, time, 8]"], bounds={"batch": (1, 4), "time": (1, 9)})


def reduced(odd: type[nn.Module], folder: Path, exporter: str | None = None, **more: Any) -> ReduceResult | None:
    settings = ReduceSettings(exporter, **{"seconds": 200.0, "trial_seconds": 60.0} | more)
    return reduce_subject(subject_of(odd), folder, settings, lambda event: None)


@pytest.mark.parametrize(
    ("odd", "exporter", "code", "left"),
    [
        (Decides, "dynamo", "FW303", ["torch.Tensor.__bool__"]),
        (Divides, "trace", "FW401", ["torch.Tensor.__floordiv__"]),
    ],
)
def test_the_script_fails_in_the_same_way_on_its_own(
    odd: type[nn.Module], exporter: str, code: str, left: list[str], tmp_path: Path
) -> None:
    got = reduced(odd, tmp_path, exporter)
    assert got is not None
    assert got.seen.signature is not None
    assert got.seen.signature.code == code
    assert [call.name for call in got.program.calls] == left
    assert got.reproduced
    assert got.finished
    script, report = (tmp_path / "repro.py").read_text(), (tmp_path / "report.md").read_text()
    assert "fairway" not in script.split("class Repro")[1]
    assert {line.split()[1] for line in script.splitlines() if line.startswith("import ")} == {
        "numpy",
        "onnxruntime",
        "torch",
    }
    for part in ("## Versions", "## Steps", "## Expected", "## Seen", "## Ruled out", "## Known upstream"):
        assert part in report
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.md", "repro.py"]


def test_a_model_that_exports_has_nothing_to_reduce(tmp_path: Path) -> None:
    assert reduced(Block, tmp_path / "r", "trace") is None
    assert not (tmp_path / "r").exists()


def names_of(case: Any) -> list[str]:
    """The calls of a model; the model itself makes all of them."""
    program = getattr(case.model, "program", None)
    return ["torch.tanh", "torch.nn.functional.linear"] if program is None else [c.name for c in program.calls]


def _only_tanh_hurts(how: Any) -> Any:
    def export(case: Any, exporter: str, path: Path) -> Any:
        if "torch.tanh" in names_of(case):
            how()
        raise RuntimeError("some other failure")

    return export


def test_an_exporter_that_crashes_is_cut_down_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "export_case", _only_tanh_hurts(os.abort))
    monkeypatch.setattr(module, "fails_alone", lambda *args: True)  # torch itself is well
    got = reduced(Block, tmp_path, "trace")
    assert got is not None
    assert str(got.seen.signature) == "FW503 at crash: signal 6"
    assert [call.name for call in got.program.calls] == ["torch.tanh"]


def test_an_exporter_that_hangs_is_cut_down_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "export_case", _only_tanh_hurts(lambda: time.sleep(600)))
    monkeypatch.setattr(module, "fails_alone", lambda *args: True)
    got = reduced(Block, tmp_path, "trace", trial_seconds=0.7)
    assert got is not None
    assert str(got.seen.signature) == "FW501 at time: does not end"
    assert [call.name for call in got.program.calls] == ["torch.tanh"]


def test_another_failure_is_not_taken_for_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A part that fails in another way, as smaller parts often do, does not count."""

    def export(case: Any, exporter: str, path: Path) -> Any:
        names = names_of(case)
        if "torch.tanh" in names and "torch.nn.functional.linear" in names:
            raise TypeError("two of them together")
        raise RuntimeError("alone, something else")

    monkeypatch.setattr(trial, "export_case", export)
    monkeypatch.setattr(module, "fails_alone", lambda *args: True)
    got = reduced(Block, tmp_path, "trace")
    assert got is not None
    assert [call.name for call in got.program.calls] == ["torch.nn.functional.linear", "torch.tanh"]


def test_it_goes_on_where_a_killed_run_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "export_case", _only_tanh_hurts(os.abort))
    monkeypatch.setattr(module, "fails_alone", lambda *args: True)
    with monkeypatch.context() as patch:
        patch.setattr(keep, "make_title", lambda seen, program, exporter: "so far")
        patch.setattr(keep.BestSoFar, "finish", lambda self, reduced: None)  # as if it had been killed before
        first = reduced(Block, tmp_path, "trace")
    assert first is not None
    assert "so far" in (tmp_path / "repro.py").read_text(), "the best so far is there at any time"
    again = reduced(Block, tmp_path, "trace")
    assert again is not None
    assert again.trials < first.trials
    assert [call.name for call in again.program.calls] == ["torch.tanh"]


def test_any_command_can_be_the_judge(tmp_path: Path) -> None:
    """Exit code 0 keeps a candidate: here, that the script still contains tanh."""
    judge = tmp_path / "judge.py"
    judge.write_text("import sys; sys.exit('tanh' not in open(sys.argv[1]).read())")
    got = reduced(Block, tmp_path / "r", "trace", check=f"{sys.executable} {judge}")
    assert got is not None
    assert [call.name for call in got.program.calls] == ["torch.tanh"]


def test_uninitialized_memory_is_not_a_wrong_answer() -> None:
    class Written(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.empty_like(x)
            y.fill_(2.0)
            return x + y

    subject = build_subject(Written(), ["x: float32[batch, 8]"], bounds={"batch": (1, 4)})
    full = record_calls(subject, subject.make(subject.example, 1, "normal"))
    assert trial.run_trial(trial.TrialCase.of(full), "trace").message == "right"
    unwritten = full.keep_calls([call for call in full.calls if call.name == "torch.empty_like"])
    assert trial.run_trial(trial.TrialCase.of(unwritten), "trace").message == "PyTorch itself fails"


def test_calls_that_are_not_the_model_are_refused() -> None:
    subject = subject_of(Block)
    tensors = subject.make(subject.example, 1, "normal")
    full = record_calls(subject, tensors)
    check_faithful(subject, full, tensors)
    last = full.calls[-1]
    other = replace(full, calls=(*full.calls[:-1], replace(last, name="torch.Tensor.log_softmax")))
    with pytest.raises(UserError, match="FW505"):
        check_faithful(subject, other, tensors)


def test_what_was_kept_is_gone_on_with_before_anything_larger_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sizes that were fixed and weights in place of inputs are a part of it, or it would not fail any more."""
    full = written_down(Block)
    bench = trial.TrialRunner("trace", 60.0)
    signature = trial.FailureSignature("crash", "FW503", "signal 6")
    part = full.keep_calls([call for call in full.calls if call.name == "torch.tanh"]).with_held_gradients()
    keep.BestSoFar(tmp_path, full, bench.exporter, trial.TrialOutcome(signature)).save(part)
    got = keep.read_best_so_far(tmp_path, full, "trace", signature)
    assert got is not None
    assert (got.calls, got.inputs, got.outputs, got.dims, got.held) == (part.calls, (), part.outputs, {}, True)
    assert keep.read_best_so_far(tmp_path, full, "dynamo", signature) is None
    assert keep.read_best_so_far(tmp_path, full.keep_calls(full.calls[:3]), "trace", signature) is None

    tried: list[int] = []

    def judged(self: trial.TrialRunner, case: Any) -> trial.TrialOutcome:
        tried.append(len(getattr(getattr(case.model, "program", None), "calls", full.calls)))
        return trial.TrialOutcome(signature)

    monkeypatch.setattr(trial.TrialRunner, "judge", judged)
    monkeypatch.setattr(module, "fails_alone", lambda *args: True)
    assert reduced(Block, tmp_path, "trace") is not None
    assert max(tried[1:]) == len(part.calls), "the model itself, then only what was kept"


def written_down(odd: type[nn.Module]) -> Any:
    subject = subject_of(odd)
    return record_calls(subject, subject.make(subject.example, 1, "normal"))


def test_what_is_to_come_is_counted_in_the_budget() -> None:
    clock = TimeBudget(60.0, 15.0)
    assert not clock.is_used_up()
    clock.last_trial_seconds = 8.0
    assert clock.generous_limit > clock.limit, "a trial of everything is not taken for one that does not end"
    clock.started -= 45.0
    assert clock.is_used_up(), "the script and the trials for the report take another fifteen seconds"
    assert clock.seconds_left > 10.0


def test_the_trials_for_the_report_do_not_outlast_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TimeBudget(0.0, 60.0)
    monkeypatch.setattr(trial.TrialRunner, "judge", lambda self, case: pytest.fail("the time was up"))
    got = rule_out(written_down(Block), trial.TrialRunner("trace", 60.0), trial.TrialOutcome(None), clock)
    assert list(got.values())[1:] == ["not tried: the time was up"] * 2


def test_if_nothing_can_be_cut_the_whole_sets_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def judged(self: trial.TrialRunner, case: Any) -> trial.TrialOutcome:
        time.sleep(0.02)
        return trial.TrialOutcome(trial.FailureSignature("crash", "FW503", "signal 6"))

    monkeypatch.setattr(trial.TrialRunner, "judge", judged)
    clock = TimeBudget(60.0, 5.0)
    assert find_failure(subject_of(Block), tmp_path, ["trace"], None, clock, lambda event: None) is not None
    assert clock.last_trial_seconds >= 0.02
