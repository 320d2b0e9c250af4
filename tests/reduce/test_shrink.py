"""What is left is the least that still fails, and the search ends when it is told to."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from fairway.debug.reduce.call_recorder import record
from fairway.debug.reduce.draw import draw
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.shrink import ends, shrink
from fairway.model.subject import build_subject


class Block(nn.Module):
    def __init__(self, odd: bool) -> None:
        super().__init__()
        self.first, self.second, self.odd = nn.Linear(8, 8), nn.Linear(8, 8), odd

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        if self.odd:
            y = y.cumsum(1).flip(1)
        return x + self.second(y)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(i == 4) for i in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def program() -> Program:
    torch.manual_seed(0)
    subject = build_subject(Net().eval(), ["x: float32[batch, time, 8]"], bounds={"batch": (1, 4), "time": (1, 9)})
    return record(subject, subject.make(subject.example, 1, "normal"))


def has(*names: str) -> object:
    def fails(candidate: Program) -> bool:
        if not candidate.operators:
            return False
        with torch.no_grad(), contextlib.suppress(TypeError):  # some do not run without what they were given
            replay(candidate)(*(candidate.seen[ref] for ref in candidate.inputs))
        called = [call.name for call in candidate.calls]
        return all(name in called for name in names)

    return fails


def test_one_operator_among_many_is_left_alone() -> None:
    small = shrink(program(), has("torch.Tensor.cumsum"), lambda: False)  # type: ignore[arg-type]
    assert [call.name for call in small.calls] == ["torch.Tensor.cumsum"]
    assert len(small.inputs) == 1
    assert small.weights == {}


def test_what_lies_before_and_behind_goes_in_few_trials() -> None:
    tried: list[Program] = []

    def fails(candidate: Program) -> bool:
        tried.append(candidate)
        return any(call.name == "torch.Tensor.cumsum" for call in candidate.calls)

    whole = program()
    small = ends(whole, fails, lambda: False)
    assert [call.name for call in small.calls] == ["torch.Tensor.cumsum"]
    assert len(tried) < 12 < len(whole.calls)


def test_two_that_are_needed_both_stay_in_their_order() -> None:
    both = ("torch.Tensor.flip", "torch.Tensor.cumsum")
    small = shrink(program(), has(*both), lambda: False)  # type: ignore[arg-type]
    assert [call.name for call in small.calls] == ["torch.Tensor.cumsum", "torch.Tensor.flip"]


def test_it_takes_the_way_through_the_modules() -> None:
    asked: list[int] = []

    def fails(candidate: Program) -> bool:
        asked.append(len(candidate.calls))
        return any(call.name == "torch.Tensor.cumsum" for call in candidate.calls)

    whole = program()
    shrink(whole, fails, lambda: False)
    assert len(asked) < len(whole.calls), "halving and descending, not one call after the other"


def test_told_to_stop_it_hands_over_what_it_has() -> None:
    whole = program()
    assert shrink(whole, has("torch.nothing"), lambda: True) is whole  # type: ignore[arg-type]
    drawn = shrink(whole, has(), lambda: True)  # type: ignore[arg-type]
    assert drawn.calls == whole.calls
    assert all(torch.equal(tensor, draw(tensor)) for tensor in drawn.weights.values())
    left = [3]

    def enough() -> bool:
        left[0] -= 1
        return left[0] < 0

    part = shrink(whole, has("torch.Tensor.cumsum"), enough)  # type: ignore[arg-type]
    assert any(call.name == "torch.Tensor.cumsum" for call in part.calls)


def test_drawn_tensors_are_like_those_they_stand_for() -> None:
    for tensor in (torch.randn(2, 3), torch.randn(2).half(), torch.tensor([3, 9]), torch.tensor([True, False])):
        got = draw(tensor)
        assert (got.shape, got.dtype) == (tensor.shape, tensor.dtype)
        assert torch.equal(got, draw(tensor))
    assert int(draw(torch.tensor([3, 9, 9])).min()) >= 3
