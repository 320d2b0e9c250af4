"""Python's decisions by numbers that it read from tensors are a part of the program and of the script."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fairway.convert.export import preload_modules
from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.other_branch import find_parting
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.recorded_model import record_model
from fairway.debug.reduce.reduce import ReduceSettings, reduce_subject
from fairway.debug.reduce.statements import write_forward
from fairway.debug.reduce.suspect_calls import find_places
from fairway.debug.reduce.trial_export import FailureSignature, TrialCase, run_trial
from fairway.judge.runtimes.eager import run_eager
from fairway.model.subject import Subject, build_subject

NUMBERS = FailureSignature("compare", "FW401", "numbers")
SHAPE = FailureSignature("compare", "FW403", "shape")


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(6, 3) for _ in range(4))
        self.scales = [1.0, 2.0, 3.0, 4.0]


class PicksModule(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return self.heads[which.item()](x.tanh()).exp()


class PicksFromList(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return x.tanh() * self.scales[which.tolist()[0]]


class PicksFromDict(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return x.tanh() * dict(enumerate(self.scales))[which.item()]


class Loops(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        for _ in range(which.item() + 1):
            x = x.tanh()
        return x


class Stacks(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return torch.stack([x.tanh()] * (which.item() + 1))


class AsksNumber(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return x.tanh() if which.item() > 1 else x.exp()


class AsksTruth(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return x.tanh() if (which == 1).any().item() else x.exp()


class AsksSize(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return x.tanh() if x.shape[0] % 2 else x.exp()


class TakesInt(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return self.heads[int(which.item())](x)


class TakesIntOfTensor(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        for _ in range(int(which)):
            x = x.tanh()
        return x


DECISIONS = {
    PicksModule: "operator.index(v3)",
    PicksFromList: "operator.index(v4[0])",
    PicksFromDict: "hash(v4)",
    Loops: "for _ in range(v4): pass",
    Stacks: "operator.index(v5)",
    AsksNumber: "if v4: pass",
    AsksTruth: "if v5: pass",
}


def subject_of(kind: type[nn.Module]) -> Subject:
    torch.manual_seed(0)
    lines = ["x: float32[batch, 6]", "which: int64[1] < 4"]
    return build_subject(kind().eval(), lines, bounds={"batch": (1, 5)}, example={"batch": 3})


def written(kind: type[nn.Module], which: int = 2) -> tuple[Subject, list[Tensor], Program]:
    subject = subject_of(kind)
    tensors = [subject.make(subject.example, 1, "normal")[0], torch.tensor([which])]
    return subject, tensors, record_calls(subject, tensors)


@pytest.mark.parametrize(("kind", "line"), DECISIONS.items())
def test_the_decision_is_a_line_and_dynamo_refuses_it_too(kind: type[nn.Module], line: str) -> None:
    subject, tensors, program = written(kind)
    assert line in write_forward(program)
    with torch.no_grad():
        (got,) = replay(program)(*tensors)
    torch.testing.assert_close(got, run_eager(subject, tensors)[0], rtol=1e-6, atol=1e-6)
    model = TrialCase(subject.model, (tensors,), [{}, {}])
    seen = [run_trial(case, "dynamo").signature for case in (TrialCase.of(program), model)]
    assert seen[0] == seen[1]
    assert seen[0] is not None
    unhashable = kind is PicksFromDict
    assert seen[0].code == ("FW301" if unhashable else "FW303")
    undecided = run_trial(TrialCase.of(program.without_decisions()), "dynamo").signature
    assert undecided != seen[0], "without the decision it is another failure, or none"


@pytest.mark.parametrize("kind", [TakesInt, TakesIntOfTensor])
def test_a_converted_number_is_forced_if_only_that_fails_alike(
    kind: type[nn.Module],
) -> None:
    subject, tensors, program = written(kind)
    seen = run_trial(TrialCase(subject.model, (tensors,), [{}, {}]), "dynamo").signature
    assert seen is not None
    assert seen.code == "FW303"
    assert run_trial(TrialCase.of(program), "dynamo").signature != seen
    assert run_trial(TrialCase.of(program.with_forced_decisions()), "dynamo").signature == seen
    with torch.no_grad():
        assert torch.equal(replay(program.with_forced_decisions())(*tensors)[0], replay(program)(*tensors)[0])


def test_a_size_that_is_asked_whether_it_is_zero_is_a_branch() -> None:
    assert "if v4 != 0: pass" in write_forward(written(AsksSize)[2])


def test_what_is_only_checked_decides_nothing() -> None:
    class Checks(Heads):
        def forward(self, x: Tensor, which: Tensor) -> Tensor:
            n = which.item()
            torch._check(n < 6)
            return x * n + n * x

    _, tensors, program = written(Checks)
    lines = write_forward(program)
    assert "torch._check(v4)" in lines
    assert not any(call.is_decision for call in program.calls)
    assert [line.split(" = ")[1] for line in lines[3:5]] == ["x0.mul(v3)", "x0.mul(v3)"], "on either side of a tensor"
    assert torch.equal(replay(program)(tensors[0], torch.tensor([5]))[0], tensors[0] * 10)


class Insists(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        n = which.item()
        if not isinstance(n, int):
            raise TypeError("an int, please")
        return x[:, :n].tanh()


class Differs(Heads):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        return x.tanh() if isinstance(which.item(), int) else x.exp()


@pytest.mark.parametrize("kind", [Insists, Differs])
def test_a_model_that_insists_on_pythons_own_numbers_gets_them(kind: type[nn.Module]) -> None:
    recording = record_model(subject_of(kind))
    assert not recording.tracks_reads
    assert write_forward(recording.program)[-2].endswith(".tanh()")
    assert record_model(subject_of(PicksModule)).tracks_reads


def test_a_number_that_a_module_kept_is_a_plain_one_afterwards() -> None:
    class Keeps(Heads):
        def forward(self, x: Tensor, which: Tensor) -> Tensor:
            self.last, self.rows = which.item(), x.shape[0]
            return x * self.last

    subject, _, _ = written(Keeps)
    assert (type(subject.model.last), type(subject.model.rows)) == (int, int)


def test_a_line_that_decides_is_tried_before_what_else_it_does() -> None:
    class Decides(Heads):
        def forward(self, x: Tensor, which: Tensor) -> Tensor:
            n = which.item()
            return self.heads[n](x.tanh()) + self.heads[n](x.exp())  # one line: two decisions and six more

    _, _, program = written(Decides)
    line = Decides.forward.__code__.co_firstlineno + 2
    result = find_places([(__file__, line)], program)
    assert [[program.calls[i].name for i in place] for place in result] == [["index"], ["torch.Tensor.add"]]


@pytest.mark.parametrize(
    ("kind", "failure", "ending"),
    [
        (PicksModule, NUMBERS, ["operator.index(v3)", "torch.tensor"]),
        (Loops, NUMBERS, ["len(range(v4))", "torch.tensor"]),
        (Stacks, SHAPE, ["operator.index(v5)", "* 1", "torch.ones"]),
        (AsksNumber, NUMBERS, ["bool(v4)", "torch.tensor"]),
    ],
)
def test_where_the_ways_part_the_answer_is_what_is_compared(
    kind: type[nn.Module], failure: FailureSignature, ending: list[str]
) -> None:
    subject, tensors, full = written(kind)
    other = record_calls(subject, [tensors[0], torch.tensor([0])])
    assert not full.has_same_calls(other), "also where the calls are the same, but not the weights that they are given"
    program = find_parting(full, other, failure)
    assert program is not None
    for line, words in zip(write_forward(program)[-1 - len(ending) : -1], ending, strict=True):
        assert words in line
    assert run_trial(TrialCase.of(program), "trace").signature == failure
    for call in program.calls:
        program.keep_calls([each for each in program.calls if each is not call])  # what is cut off has a value
    assert find_parting(full, full, failure) is None, "no answer differs"
    assert find_parting(full, other, FailureSignature("run", "FW408", "Slice")) is None


def test_other_values_at_the_same_sizes_come_first_and_then_the_largest() -> None:
    recording = record_model(subject_of(Loops))
    sizes = [given[0].shape[0] for given in recording.other_branch_samples]
    assert sizes[0] == 3
    rest = [size for size in sizes if size != 3]
    assert rest == sorted(rest, reverse=True)


@pytest.mark.parametrize(
    ("kind", "exporter", "failure", "calls"),
    [
        (TakesIntOfTensor, "dynamo", "FW303 at export: GuardOnDataDependentSymNode", ["torch.Tensor.__int__", "index"]),
        (PicksModule, "dynamo", "FW303 at export: GuardOnDataDependentSymNode", ["torch.Tensor.item", "index"]),
        (Loops, "trace", "FW401 at compare: numbers", ["torch.Tensor.item", "range", "torch.tensor"]),
    ],
)
def test_the_script_keeps_the_decision_and_fails_as_the_model_does(
    kind: type[nn.Module], exporter: str, failure: str, calls: list[str], tmp_path: Path
) -> None:
    preload_modules()
    got = reduce_subject(subject_of(kind), tmp_path, ReduceSettings(exporter), lambda event: None)
    assert got is not None
    assert str(got.seen.signature) == failure
    assert [call.name for call in got.program.calls if call.name != "add"] == calls
    assert got.reproduced
    assert str(Path(sys.prefix)) not in got.script
