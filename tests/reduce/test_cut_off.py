"""What is cut off leaves behind all that a failure may hang on: open sizes, how it lay in memory, gradients."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from fairway.debug.reduce.call_recorder import record
from fairway.debug.reduce.draw import draw
from fairway.debug.reduce.first_cut import ways
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.reproducer import drawn, write_script
from fairway.debug.reduce.shrink import at_once, closed, contiguous, held_back
from fairway.debug.reduce.trial_export import TrialRunner, dynamic, values_at
from fairway.model.subject import build_subject


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)[:, ::2].transpose(1, 2)
        return y.tanh().exp().abs().sin().cos()


def program() -> Program:
    torch.manual_seed(0)
    bounds = {"batch": (1, 4), "time": (1, 20)}
    subject = build_subject(Halves().eval(), ["x: float32[batch, time, 8]"], bounds=bounds)
    whole = record(subject, subject.make({"batch": 3, "time": 10}, 1, "normal"))
    others = [record(subject, subject.make({"batch": 2, "time": n}, 1, "normal")).seen for n in (7, 16)]
    return whole.compared(others)


def behind(whole: Program) -> Program:
    return whole.only(
        [call for call in whole.calls if call.name.split(".")[-1] in ("tanh", "exp", "abs", "sin", "cos")]
    )


def test_a_size_that_was_computed_from_a_dim_stays_open() -> None:
    part = behind(program())
    (value,) = values_at(part)
    assert value.shape == (3, 8, 5)
    assert [sorted(axes) for axes in dynamic(part, [value])] == [[0, 2]]
    assert "2: torch.export.Dim.DYNAMIC" in write_script(part, "dynamo", "t")
    assert dynamic(part.closed(), [value]) == [{}]


def test_what_is_drawn_lies_in_memory_as_it_did_also_in_the_script() -> None:
    lying = torch.randn(3, 5, 8).transpose(1, 2).clone()
    assert not lying.is_contiguous()
    names = {"torch": torch, "seed": lambda: torch.Generator().manual_seed(0)}
    for tensor in (lying, lying > 0, (lying * 9).long(), lying.half()):
        for written in (tensor, draw(tensor)):
            got = eval(drawn(written), names)
            assert torch.equal(got, written)
            assert got.stride() == draw(tensor).stride() == tensor.stride()


def test_it_becomes_plain_where_nothing_hangs_on_it() -> None:
    part = behind(program())
    (ref,) = part.inputs
    assert not part.seen[ref].is_contiguous()
    assert contiguous(part, lambda p: False, lambda: False) is part
    assert contiguous(part, lambda p: True, lambda: False).seen[ref].is_contiguous()


def test_behind_trained_weights_a_weight_stands_for_what_was_cut_off() -> None:
    part = behind(program()).held_back()
    assert part.inputs == ()
    assert [tensor.requires_grad for tensor in part.weights.values()] == [True]
    assert replay(part)()[0].requires_grad
    later = part.only(part.calls[-1:])
    assert later.inputs == ()
    assert [tensor.requires_grad for tensor in later.weights.values()] == [True]


def test_weights_stand_for_inputs_only_where_much_is_left_and_sizes_are_fixed() -> None:
    whole = program()
    assert held_back(whole, lambda p: True, lambda: False) is whole, "sizes are open"
    assert held_back(whole.closed(), lambda p: True, lambda: False).held
    small = whole.closed().only(whole.calls[:2])
    assert held_back(small, lambda p: True, lambda: False) is small


def test_sizes_are_fixed_where_the_failure_hangs_on_none() -> None:
    whole = program()
    assert closed(whole, lambda p: True, lambda: False).dims == {}
    assert closed(whole, lambda p: bool(p.dims), lambda: False) is whole


def test_numbers_drawn_at_once_keep_their_gradients() -> None:
    whole = program()
    plain = at_once(whole, lambda p: True, lambda: False)
    assert [t.requires_grad for t in plain.weights.values()] == [t.requires_grad for t in whole.weights.values()]
    assert any(t.requires_grad for t in plain.weights.values())
    assert all(torch.equal(t, draw(t)) for t in plain.weights.values())


class Chunks(nn.Module):
    """Eight steps are one chunk: an open size that is one at the example."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.tanh().unflatten(1, (-1, 8))
        return y.exp().sin().sum(2)


def chunked() -> Program:
    bounds = {"batch": (1, 4), "time": (8, 32)}
    subject = build_subject(Chunks().eval(), ["x: float32[batch, time, 8]"], bounds=bounds, multiples={"time": 8})
    whole, other = (record(subject, subject.make({"batch": 2, "time": n}, 1, "normal")) for n in (8, 24))
    return replace(whole, dims={2: "batch", 8: "time"}).compared([other.seen])


def test_a_fixed_size_that_happens_to_be_a_dims_is_not_declared_open() -> None:
    whole = chunked()
    assert whole.varied == {8}
    assert whole.open_axes(whole.inputs[0]) == [0, 1], "batch never varied, so all that is of its size may be it"
    unseen = replace(whole, opened={}, varied=frozenset())
    assert unseen.open_axes(whole.inputs[0]) == [0, 1, 2], "without another input a size is all there is to go by"
    assert whole.closed().open_axes(whole.inputs[0]) == []


def test_an_open_size_of_one_is_not_cut_off() -> None:
    whole = chunked()
    sin = [call for call in whole.calls if call.name.endswith("sin")]
    assert [ref.var for ref in whole.only(sin).unsaid()] == [call.var for call in whole.calls if "exp" in call.name]
    part = whole.part(sin)
    assert part.unsaid() == []
    assert part.calls[0].name.endswith("unflatten"), "what is before it has a size that can be declared"
    assert part.calls[-1].name.endswith("sin")
    refused = TrialRunner("dynamo", 60.0)
    assert refused(whole.only(sin)).said == "an open size of one was cut off, which cannot be declared"
    assert refused.tried == 0


def test_where_the_failure_was_at_another_input_nothing_is_tried_at_the_example_alone() -> None:
    whole = program()
    assert [way.dims for way in ways(whole, whole.weights)] == [whole.dims]
    alone = replace(whole, others=())
    assert len(ways(alone, alone.weights)) == 3
