"""A part keeps everything a failure may depend on: open sizes, memory layout, gradients."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.draw import draw_like
from fairway.debug.reduce.first_cut import list_variants
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.reproducer import write_script, write_tensor
from fairway.debug.reduce.shrink import draw_early, fix_sizes, hold_gradients, make_contiguous
from fairway.debug.reduce.trial_export import TrialRunner, get_inputs, list_dynamic_axes
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
    full = record_calls(subject, subject.make({"batch": 3, "time": 10}, 1, "normal"))
    others = [record_calls(subject, subject.make({"batch": 2, "time": n}, 1, "normal")).seen for n in (7, 16)]
    return full.with_other_inputs(others)


def behind(whole: Program) -> Program:
    return whole.keep_calls(
        [call for call in whole.calls if call.name.split(".")[-1] in ("tanh", "exp", "abs", "sin", "cos")]
    )


def test_a_size_that_was_computed_from_a_dim_stays_open() -> None:
    part = behind(program())
    (value,) = get_inputs(part)
    assert value.shape == (3, 8, 5)
    assert [sorted(axes) for axes in list_dynamic_axes(part, [value])] == [[0, 2]]
    assert "2: torch.export.Dim.DYNAMIC" in write_script(part, "dynamo", "t")
    assert list_dynamic_axes(part.with_fixed_sizes(), [value]) == [{}]


def test_drawn_tensors_keep_their_memory_layout_in_the_script() -> None:
    lying = torch.randn(3, 5, 8).transpose(1, 2).clone()
    assert not lying.is_contiguous()
    names = {"torch": torch, "seed": lambda: torch.Generator().manual_seed(0)}
    for tensor in (lying, lying > 0, (lying * 9).long(), lying.half()):
        for written in (tensor, draw_like(tensor)):
            got = eval(write_tensor(written), names)
            assert torch.equal(got, written)
            assert got.stride() == draw_like(tensor).stride() == tensor.stride()


def test_it_becomes_plain_where_nothing_hangs_on_it() -> None:
    part = behind(program())
    (ref,) = part.inputs
    assert not part.seen[ref].is_contiguous()
    assert make_contiguous(part, lambda p: False, lambda: False) is part
    assert make_contiguous(part, lambda p: True, lambda: False).seen[ref].is_contiguous()


def test_behind_trained_weights_a_weight_stands_for_what_was_cut_off() -> None:
    part = behind(program()).with_held_gradients()
    assert part.inputs == ()
    assert [tensor.requires_grad for tensor in part.weights.values()] == [True]
    assert replay(part)()[0].requires_grad
    later = part.keep_calls(part.calls[-1:])
    assert later.inputs == ()
    assert [tensor.requires_grad for tensor in later.weights.values()] == [True]


def test_weights_replace_inputs_only_in_large_programs_with_fixed_sizes() -> None:
    full = program()
    assert hold_gradients(full, lambda p: True, lambda: False) is full, "sizes are open"
    assert hold_gradients(full.with_fixed_sizes(), lambda p: True, lambda: False).held
    small = full.with_fixed_sizes().keep_calls(full.calls[:2])
    assert hold_gradients(small, lambda p: True, lambda: False) is small


def test_sizes_are_fixed_where_the_failure_hangs_on_none() -> None:
    full = program()
    assert fix_sizes(full, lambda p: True, lambda: False).dims == {}
    assert fix_sizes(full, lambda p: bool(p.dims), lambda: False) is full


def test_numbers_drawn_at_once_keep_their_gradients() -> None:
    full = program()
    plain = draw_early(full, lambda p: True, lambda: False)
    assert [t.requires_grad for t in plain.weights.values()] == [t.requires_grad for t in full.weights.values()]
    assert any(t.requires_grad for t in plain.weights.values())
    assert all(torch.equal(t, draw_like(t)) for t in plain.weights.values())


class Chunks(nn.Module):
    """Eight steps are one chunk: an open size that is one at the example."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.tanh().unflatten(1, (-1, 8))
        return y.exp().sin().sum(2)


def chunked() -> Program:
    bounds = {"batch": (1, 4), "time": (8, 32)}
    subject = build_subject(Chunks().eval(), ["x: float32[batch, time, 8]"], bounds=bounds, multiples={"time": 8})
    full, other = (record_calls(subject, subject.make({"batch": 2, "time": n}, 1, "normal")) for n in (8, 24))
    return replace(full, dims={2: "batch", 8: "time"}).with_other_inputs([other.seen])


def test_a_fixed_size_equal_to_a_dim_is_not_declared_open() -> None:
    full = chunked()
    assert full.varied == {8}
    assert full.list_open_axes(full.inputs[0]) == [0, 1], "batch never varied, so all that is of its size may be it"
    unseen = replace(full, opened={}, varied=frozenset())
    assert unseen.list_open_axes(full.inputs[0]) == [0, 1, 2], "without another input a size is all there is to go by"
    assert full.with_fixed_sizes().list_open_axes(full.inputs[0]) == []


def test_an_open_size_of_one_is_not_cut_off() -> None:
    full = chunked()
    sin = [call for call in full.calls if call.name.endswith("sin")]
    assert [ref.var for ref in full.keep_calls(sin).list_undeclarable_inputs()] == [
        call.var for call in full.calls if "exp" in call.name
    ]
    part = full.cut_to(sin)
    assert part.list_undeclarable_inputs() == []
    assert part.calls[0].name.endswith("unflatten"), "what is before it has a size that can be declared"
    assert part.calls[-1].name.endswith("sin")
    refused = TrialRunner("dynamo", 60.0)
    assert refused(full.keep_calls(sin)).message == "an open size of one was cut off, which cannot be declared"
    assert refused.trials == 0


def test_a_failure_at_another_input_is_tried_there() -> None:
    full = program()
    assert [way.dims for way in list_variants(full, full.weights)] == [full.dims]
    alone = replace(full, others=())
    assert len(list_variants(alone, alone.weights)) == 3
