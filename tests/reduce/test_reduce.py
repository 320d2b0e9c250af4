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

from fairway.errors import UserError
from fairway.exporting import warm_up
from fairway.reduce import reduce as module
from fairway.reduce import trial
from fairway.reduce.record import record
from fairway.reduce.reduce import reduce_subject
from fairway.reduce.report import Reduced
from fairway.subject.subject import Subject, build_subject


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
        "numpy", "onnxruntime", "torch",
    }  # fmt: skip
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
    monkeypatch.setattr(module, "_runs_alone", lambda *args: True)  # torch itself is well
    got = reduced(Block, tmp_path, "trace")
    assert got is not None
    assert str(got.seen.signature) == "FW503 at crash: signal 6"
    assert [call.name for call in got.program.calls] == ["torch.tanh"]


def test_an_exporter_that_hangs_is_cut_down_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "export", _only_tanh_hurts(lambda: time.sleep(600)))
    monkeypatch.setattr(module, "_runs_alone", lambda *args: True)
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
    monkeypatch.setattr(module, "_runs_alone", lambda *args: True)
    got = reduced(Block, tmp_path, "trace")
    assert got is not None
    assert [call.name for call in got.program.calls] == ["torch.nn.functional.linear", "torch.tanh"]


def test_it_goes_on_where_a_killed_run_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "export", _only_tanh_hurts(os.abort))
    monkeypatch.setattr(module, "_runs_alone", lambda *args: True)
    with monkeypatch.context() as patch:
        patch.setattr(module, "title_of", lambda seen, program, exporter: "so far")
        patch.setattr(module._Keeper, "finish", lambda self, reduced: None)  # as if it had been killed before
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
    assert trial.attempt(trial.Case.of(whole), "trace").said == "right"
    unwritten = whole.only([call for call in whole.calls if call.name == "torch.empty_like"])
    assert trial.attempt(trial.Case.of(unwritten), "trace").said == "PyTorch itself refuses this"


def test_calls_that_are_not_the_model_are_refused() -> None:
    subject = subject_of(Block)
    tensors = subject.make(subject.example, 1, "normal")
    whole = record(subject, tensors)
    module._check_faithful(subject, whole, tensors)
    last = whole.calls[-1]
    other = replace(whole, calls=(*whole.calls[:-1], replace(last, name="torch.Tensor.log_softmax")))
    with pytest.raises(UserError, match="FW505"):
        module._check_faithful(subject, other, tensors)
