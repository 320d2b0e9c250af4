"""From failing models to scripts that fail in the same way on their own. A missing translation is in the how-to."""

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

from fairway.convert.export import warm_up
from fairway.debug.reduce import best_so_far as keep
from fairway.debug.reduce import reduce as module
from fairway.debug.reduce import trial_export as trial
from fairway.debug.reduce.call_recorder import record
from fairway.debug.reduce.failure import failing
from fairway.debug.reduce.issue_report import Reduced
from fairway.debug.reduce.last_checks import Clock, rule_out
from fairway.debug.reduce.recorded_model import check_faithful
from fairway.debug.reduce.reduce import reduce_subject
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
    warm_up()


def subject_of(odd: type[nn.Module]) -> Subject:
    torch.manual_seed(0)
    return build_subject(Net(odd).eval(), ["x: float32[batch, time, 8]"], bounds={"batch": (1, 4), "time": (1, 9)})


def reduced(odd: type[nn.Module], folder: Path, exporter: str | None = None, **more: Any) -> Reduced | None:
    settings = {"check": None, "budget": 200.0, "limit": 60.0, "progress": lambda event: None} | more
    return reduce_subject(subject_of(odd), folder, exporter, **settings)


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
    """What a model calls; the model itself calls everything."""
    program = getattr(case.model, "program", None)
    return ["torch.tanh", "torch.nn.functional.linear"] if program is None else [c.name for c in program.calls]


def _only_tanh_hurts(how: Any) -> Any:
    def export(case: Any, exporter: str, path: Path) -> Any:
        if "torch.tanh" in names_of(case):
            how()
        raise RuntimeError("some other failure")

    return export


def test_an_exporter_that_crashes_is_cut_down_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "export", _only_tanh_hurts(os.abort))
    monkeypatch.setattr(module, "runs_alone", lambda *args: True)  # torch itself is well
    got = reduced(Block, tmp_path, "trace")
    assert got is not None
    assert str(got.seen.signature) == "FW503 at crash: signal 6"
    assert [call.name for call in got.program.calls] == ["torch.tanh"]


def test_an_exporter_that_hangs_is_cut_down_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "export", _only_tanh_hurts(lambda: time.sleep(600)))
    monkeypatch.setattr(module, "runs_alone", lambda *args: True)
    got = reduced(Block, tmp_path, "trace", limit=0.7)
    assert got is not None
    assert str(got.seen.signature) == "FW501 at time: does not end"
    assert [call.name for call in got.program.calls] == ["torch.tanh"]


def test_another_failure_is_not_taken_for_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A part that fails otherwise, as smaller parts often do, is no step forward."""

    def export(case: Any, exporter: str, path: Path) -> Any:
        names = names_of(case)
        if "torch.tanh" in names and "torch.nn.functional.linear" in names:
            raise TypeError("two of them together")
        raise RuntimeError("alone, something else")

    monkeypatch.setattr(trial, "export", export)
    monkeypatch.setattr(module, "runs_alone", lambda *args: True)
    got = reduced(Block, tmp_path, "trace")
    assert got is not None
    assert [call.name for call in got.program.calls] == ["torch.nn.functional.linear", "torch.tanh"]


def test_it_goes_on_where_a_killed_run_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "export", _only_tanh_hurts(os.abort))
    monkeypatch.setattr(module, "runs_alone", lambda *args: True)
    with monkeypatch.context() as patch:
        patch.setattr(keep, "title_of", lambda seen, program, exporter: "so far")
        patch.setattr(keep.Keeper, "finish", lambda self, reduced: None)  # as if it had been killed before
        first = reduced(Block, tmp_path, "trace")
    assert first is not None
    assert "so far" in (tmp_path / "repro.py").read_text(), "the best so far is there at any time"
    again = reduced(Block, tmp_path, "trace")
    assert again is not None
    assert again.tried < first.tried
    assert [call.name for call in again.program.calls] == ["torch.tanh"]


def test_any_command_can_be_the_judge(tmp_path: Path) -> None:
    """Exit code 0 keeps a candidate: here, that the script still speaks of tanh."""
    judge = tmp_path / "judge.py"
    judge.write_text("import sys; sys.exit('tanh' not in open(sys.argv[1]).read())")
    got = reduced(Block, tmp_path / "r", "trace", check=f"{sys.executable} {judge}")
    assert got is not None
    assert [call.name for call in got.program.calls] == ["torch.tanh"]


def test_memory_that_nobody_wrote_to_is_no_wrong_answer() -> None:
    class Written(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.empty_like(x)
            y.fill_(2.0)
            return x + y

    subject = build_subject(Written(), ["x: float32[batch, 8]"], bounds={"batch": (1, 4)})
    whole = record(subject, subject.make(subject.example, 1, "normal"))
    assert trial.attempt(trial.TrialCase.of(whole), "trace").said == "right"
    unwritten = whole.only([call for call in whole.calls if call.name == "torch.empty_like"])
    assert trial.attempt(trial.TrialCase.of(unwritten), "trace").said == "PyTorch itself refuses this"


def test_calls_that_are_not_the_model_are_refused() -> None:
    subject = subject_of(Block)
    tensors = subject.make(subject.example, 1, "normal")
    whole = record(subject, tensors)
    check_faithful(subject, whole, tensors)
    last = whole.calls[-1]
    other = replace(whole, calls=(*whole.calls[:-1], replace(last, name="torch.Tensor.log_softmax")))
    with pytest.raises(UserError, match="FW505"):
        check_faithful(subject, other, tensors)


def test_what_was_kept_is_gone_on_with_before_anything_larger_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sizes that were fixed and weights in place of inputs are a part of it, or it would not fail any more."""
    whole = written_down(Block)
    bench = trial.TrialRunner("trace", 60.0)
    signature = trial.FailureSignature("crash", "FW503", "signal 6")
    part = whole.only([call for call in whole.calls if call.name == "torch.tanh"]).held_back()
    keep.Keeper(tmp_path, whole, bench.exporter, trial.Seen(signature)).keep(part)
    got = keep.resume(tmp_path, whole, "trace", signature)
    assert got is not None
    assert (got.calls, got.inputs, got.outputs, got.dims, got.held) == (part.calls, (), part.outputs, {}, True)
    assert keep.resume(tmp_path, whole, "dynamo", signature) is None
    assert keep.resume(tmp_path, whole.only(whole.calls[:3]), "trace", signature) is None

    tried: list[int] = []

    def judged(self: trial.TrialRunner, case: Any) -> trial.Seen:
        tried.append(len(getattr(getattr(case.model, "program", None), "calls", whole.calls)))
        return trial.Seen(signature)

    monkeypatch.setattr(trial.TrialRunner, "judge", judged)
    monkeypatch.setattr(module, "runs_alone", lambda *args: True)
    assert reduced(Block, tmp_path, "trace") is not None
    assert max(tried[1:]) == len(part.calls), "the model itself, then only what was kept"


def written_down(odd: type[nn.Module]) -> Any:
    subject = subject_of(odd)
    return record(subject, subject.make(subject.example, 1, "normal"))


def test_what_is_to_come_is_counted_in_the_budget() -> None:
    clock = Clock(60.0, 15.0)
    assert not clock.enough()
    clock.last = 8.0
    assert clock.generous > clock.limit, "a trial of everything is not taken for one that does not end"
    clock.started -= 45.0
    assert clock.enough(), "the script and the trials for the report take another fifteen seconds"
    assert clock.left > 10.0


def test_the_trials_for_the_report_do_not_outlast_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.0, 60.0)
    monkeypatch.setattr(trial.TrialRunner, "judge", lambda self, case: pytest.fail("the time was up"))
    got = rule_out(written_down(Block), trial.TrialRunner("trace", 60.0), trial.Seen(None), clock)
    assert list(got.values())[1:] == ["not tried: the time was up"] * 2


def test_where_nothing_can_be_cut_the_time_of_the_whole_is_what_is_to_come(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def judged(self: trial.TrialRunner, case: Any) -> trial.Seen:
        time.sleep(0.02)
        return trial.Seen(trial.FailureSignature("crash", "FW503", "signal 6"))

    monkeypatch.setattr(trial.TrialRunner, "judge", judged)
    clock = Clock(60.0, 5.0)
    assert failing(subject_of(Block), tmp_path, ["trace"], None, clock, lambda event: None) is not None
    assert clock.last >= 0.02
