"""The result is the smallest program that still fails, and the search ends on time."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.draw import draw_like
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.shrink import cut_ends, shrink
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
    return record_calls(subject, subject.make(subject.example, 1, "normal"))


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

    full = program()
    small = cut_ends(full, fails, lambda: False)
    assert [call.name for call in small.calls] == ["torch.Tensor.cumsum"]
    assert len(tried) < 12 < len(full.calls)


def test_two_that_are_needed_both_stay_in_their_order() -> None:
    both = ("torch.Tensor.flip", "torch.Tensor.cumsum")
    small = shrink(program(), has(*both), lambda: False)  # type: ignore[arg-type]
    assert [call.name for call in small.calls] == ["torch.Tensor.cumsum", "torch.Tensor.flip"]


def test_it_takes_the_way_through_the_modules() -> None:
    requests: list[int] = []

    def fails(candidate: Program) -> bool:
        requests.append(len(candidate.calls))
        return any(call.name == "torch.Tensor.cumsum" for call in candidate.calls)

    full = program()
    shrink(full, fails, lambda: False)
    assert len(requests) < len(full.calls), "halving and descending, not one call after the other"


def test_told_to_stop_it_hands_over_what_it_has() -> None:
    full = program()
    assert shrink(full, has("torch.nothing"), lambda: True) is full  # type: ignore[arg-type]
    drawn = shrink(full, has(), lambda: True)  # type: ignore[arg-type]
    assert drawn.calls == full.calls
    assert all(torch.equal(tensor, draw_like(tensor)) for tensor in drawn.weights.values())
    left = [3]

    def enough() -> bool:
        left[0] -= 1
        return left[0] < 0

    part = shrink(full, has("torch.Tensor.cumsum"), enough)  # type: ignore[arg-type]
    assert any(call.name == "torch.Tensor.cumsum" for call in part.calls)


def test_drawn_tensors_are_like_those_they_stand_for() -> None:
    for tensor in (torch.randn(2, 3), torch.randn(2).half(), torch.tensor([3, 9]), torch.tensor([True, False])):
        got = draw_like(tensor)
        assert (got.shape, got.dtype) == (tensor.shape, tensor.dtype)
        assert torch.equal(got, draw_like(tensor))
    assert int(draw_like(torch.tensor([3, 9, 9])).min()) >= 3
