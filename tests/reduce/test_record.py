"""A model recorded as calls computes what the model does, and sizes stay sizes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.failure import make_not_by_calls_error
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.recorded_model import choose_distinct_sizes
from fairway.debug.reduce.statements import write_forward
from fairway.debug.reduce.trial_export import read_outcome
from fairway.judge.runtimes.eager import run_eager
from fairway.model.subject import Subject, build_subject
from fairway.workers.attempt import Outcome


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)])
        self.table = nn.Parameter(torch.randn(40, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.table[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return x.reshape(x.shape[0], -1).square().cumsum(-1)


class Looped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            total = total * 0.5 + x[:, step]
        return total


class Branched(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = -x
        if x.shape[1] > 4:
            x = x[:, :4]
        return x / x.abs().max().item()


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        y = x.clone()
        y[:, 0] = 1.0
        y.mul_(2)
        values, places = y.sort(dim=1)
        return {"values": values, "places": places.float()}


def subject_of(model: nn.Module) -> Subject:
    torch.manual_seed(0)
    return build_subject(model.eval(), ["x: float32[batch, time, 8]"], bounds={"batch": (1, 5), "time": (2, 9)})


def written(model: nn.Module) -> tuple[Subject, Program, list[Tensor]]:
    subject = subject_of(model)
    tensors = subject.make(subject.example, 1, "normal")
    return subject, record_calls(subject, tensors), tensors


@pytest.mark.parametrize("kind", [Layers, Looped, Branched, InPlace])
def test_the_calls_give_what_the_model_gives(kind: type[nn.Module]) -> None:
    subject, program, tensors = written(kind())
    with torch.no_grad():
        got = replay(program)(*(tensor.clone() for tensor in tensors))
    for ours, theirs in zip(run_eager(subject, tensors), got, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-6)  # fused layers round otherwise


def test_what_hangs_on_a_size_is_computed_anew_at_another() -> None:
    subject, program, _ = written(Layers())
    other = subject.make({"batch": 4, "time": 7}, 3, "normal")
    with torch.no_grad():
        (got,) = replay(program)(*other)
    torch.testing.assert_close(got, run_eager(subject, other)[0], rtol=1e-6, atol=1e-6)


def test_loops_branches_and_numbers_read_from_tensors_are_written_down() -> None:
    _, loop, _ = written(Looped())
    assert any(line.startswith("for _ in range(v") for line in write_forward(loop))
    _, branch, _ = written(Branched())
    message = "\n".join(write_forward(branch))
    assert "if v3: pass" in message
    assert "> 4: pass" in message
    assert ".item()" in message
    assert f"/ v{branch.calls[-1].args[1].var}" in message or ".div(v" in message, (
        "the number is a variable, not a constant"
    )


def test_what_asks_for_a_range_meanwhile_gets_one() -> None:
    class Asks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert isinstance(range(x.shape[1]), range)
            assert not isinstance(3, range)
            assert int | range  # as in the annotations of a module that is imported meanwhile
            return x * len(range(2))

    subject = subject_of(Asks())
    assert record_calls(subject, subject.make(subject.example, 1, "normal")).calls


def test_range_and_torch_are_as_before_afterwards() -> None:
    before = range
    written(Looped())
    assert range is before
    assert type(torch.zeros(2, 3).shape[0]) is int


def test_a_part_takes_missing_values_as_inputs() -> None:
    _, program, _ = written(Layers())
    linear = [call for call in program.calls if call.name == "torch.nn.functional.linear"][:1]
    part = program.keep_calls(linear)
    assert len(part.calls) == 1
    assert len(part.inputs) == 1
    assert isinstance(part.seen[part.inputs[0]], Tensor)
    with torch.no_grad():
        (got,) = replay(part)(part.seen[part.inputs[0]])
    torch.testing.assert_close(got, part.seen[part.outputs[0]], rtol=0, atol=0)


def test_a_line_that_decides_the_number_of_calls_is_named() -> None:
    finding = make_not_by_calls_error(subject_of(Looped()), "it fails").finding
    assert finding.code == "FW505"
    assert finding.where is not None
    assert finding.where.source == "for step in range(x.shape[1]):"
    assert make_not_by_calls_error(subject_of(Layers()), "it fails").finding.where is None


def test_rounding_and_signs_of_sizes_stay_sizes() -> None:
    class Rounds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, : math.ceil(x.shape[1] / 2)] * -x.shape[0]

    _, program, _ = written(Rounds())
    message = "\n".join(write_forward(program))
    assert "math.ceil(v" in message
    assert "= -v" in message
    other = torch.randn(3, 7, 8)
    assert torch.equal(replay(program)(other)[0], other[:, :4] * -3)


def test_the_same_way_is_told_from_another() -> None:
    subject, program, _ = written(Looped())
    longer = record_calls(subject, subject.make({"batch": 2, "time": 9}, 1, "normal"))
    again = record_calls(subject, subject.make(subject.example, 5, "normal"))
    assert program.has_same_calls(again)
    assert not program.has_same_calls(longer)


def test_dims_are_told_from_fixed_sizes_by_another_example() -> None:
    clash = build_subject(
        nn.Conv1d(2, 3, 1).eval(),
        ["input: float32[batch, 2, time]"],
        bounds={"batch": (1, 9), "time": (1, 9)},
        example={"batch": 2, "time": 3},
    )
    chosen = choose_distinct_sizes(clash).example
    assert 2 not in chosen.values()
    assert len({*chosen.values()}) == 2
    assert choose_distinct_sizes(replace(clash, example={"batch": 5, "time": 7})).example == {"batch": 5, "time": 7}


def test_a_trial_that_fills_the_memory_is_no_right_file() -> None:
    seen = read_outcome(Outcome("memory", 1.0, 3 * 2**30))
    assert str(seen.signature) == "FW502 at memory: takes too much memory"
