"""Sizes, dtypes and constants that the failure does not hang on become plain; those that it hangs on stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from fairway.debug.reduce.call_recorder import record
from fairway.debug.reduce.draw import draw
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.reproducer import write_script
from fairway.debug.reduce.simplify import plain_constants, plain_dtypes, small_sizes
from fairway.judge.runtimes.eager import as_exported
from fairway.model.subject import build_subject


class Rare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 48, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.leaky_relu(x.to(torch.float64) @ self.weight, 0.25)
        return torch.sum(y.view(y.shape[0], -1, 48, 1), dim=1, keepdim=True)


def program() -> Program:
    subject = build_subject(Rare().eval(), ["x: float32[batch, time, 16]"], bounds={"batch": (1, 4), "time": (1, 9)})
    return record(subject, subject.make(subject.example, 1, "normal"))


def runs(wanted: Callable[[Program], bool]) -> Callable[[Program], bool]:
    def fails(candidate: Program) -> bool:
        try:
            with torch.no_grad():
                replay(candidate)(*(candidate.seen[ref] for ref in candidate.inputs))
        except (RuntimeError, TypeError):
            return False
        return wanted(candidate)

    return fails


def test_fixed_sizes_become_small_wherever_they_stand_and_dims_stay() -> None:
    small = small_sizes(program(), runs(lambda p: True), lambda: False)
    (weight,) = small.weights.values()
    assert max(weight.shape) < 8
    (ref,) = small.inputs
    assert small.seen[ref].shape[:2] == program().seen[ref].shape[:2]
    view = next(call for call in small.calls if call.name.endswith("view"))
    assert 48 not in view.args


def test_what_was_drawn_is_drawn_at_the_small_size_too() -> None:
    whole = program()
    whole = replace(whole, weights={ref: draw(tensor) for ref, tensor in whole.weights.items()})
    for step in (small_sizes, plain_dtypes):
        whole = step(whole, runs(lambda p: True), lambda: False)
        (weight,) = whole.weights.values()
        assert torch.equal(weight, draw(weight))


def test_a_size_that_matters_stays() -> None:
    small = small_sizes(program(), runs(lambda p: next(iter(p.weights.values())).shape[1] == 48), lambda: False)
    assert next(iter(small.weights.values())).shape[1] == 48


def test_a_rare_dtype_becomes_the_ordinary_one_also_where_a_call_names_it() -> None:
    plain = plain_dtypes(program(), runs(lambda p: True), lambda: False)
    assert next(iter(plain.weights.values())).dtype == torch.float32
    assert not any(torch.float64 in call.args for call in plain.calls)


def test_constants_go_unless_the_failure_hangs_on_them() -> None:
    def summed(candidate: Program) -> bool:
        return any(call.kwargs.get("keepdim") for call in candidate.calls)

    plain = plain_constants(program(), runs(summed), lambda: False)
    given = {call.name.split(".")[-1]: (call.args, dict(call.kwargs)) for call in plain.calls}
    assert len(given["leaky_relu"][0]) == 1
    assert given["sum"][1]["keepdim"] is True


class Reckons(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[0].roll(x.shape[1] // 2 - 1, 0)


def test_what_python_writes_with_two_operands_keeps_both() -> None:
    """A candidate that no script can be written of is none."""
    subject = build_subject(Reckons(), ["x: float32[batch, time, 16]"], bounds={"batch": (1, 4), "time": (1, 9)})
    whole = record(subject, subject.make(subject.example, 1, "normal"))
    plain = plain_constants(whole, lambda p: bool(write_script(p, "dynamo", "t")), lambda: False)
    given = [len(call.args) for call in plain.calls if call.name in ("floordiv", "sub") or "getitem" in call.name]
    assert given == [2, 2, 2]


def test_time_that_is_up_leaves_all_as_it_is() -> None:
    whole = program()
    for step in (plain_constants, plain_dtypes, small_sizes):
        assert step(whole, lambda p: True, lambda: True) is whole


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flip(1) if torch.compiler.is_exporting() else x.roll(1, 1)


def test_a_model_that_asks_is_told_that_it_is_exported_and_only_then() -> None:
    subject = build_subject(Asks(), ["x: float32[batch, 4]"], bounds={"batch": (1, 4)})
    tensors = subject.make(subject.example, 1, "normal")
    with as_exported():
        told = record(subject, tensors)
    assert [call.name for call in told.calls] == ["torch.Tensor.flip"]
    assert [call.name for call in record(subject, tensors).calls] == ["torch.Tensor.roll"]


def test_weights_keep_whether_they_ask_for_gradients() -> None:
    whole = program()
    assert [p.requires_grad for p in replay(whole).parameters()] == [True]
    assert not [*replay(whole.untrained()).parameters()]
    assert "torch.nn.Parameter(" in write_script(whole, "dynamo", "t")
    assert "torch.nn.Parameter(" not in write_script(whole.untrained(), "dynamo", "t")


@torch.library.custom_op("reduce_test::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


def test_an_operator_that_a_library_brought_is_declared_in_the_script() -> None:
    class Brought(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.reduce_test.twice(x)

    subject = build_subject(Brought(), ["x: float32[batch, 4]"], bounds={"batch": (1, 4)})
    script = write_script(record(subject, subject.make(subject.example, 1, "normal")), "dynamo", "t")
    head = script.partition("def seed")[0].replace("reduce_test", "reduce_test_again")
    exec(head, {})
    with torch._subclasses.FakeTensorMode():
        assert torch.ops.reduce_test_again.twice(torch.ones(2, 4)).shape == (2, 4)
    assert torch.ops.reduce_test_again.twice(torch.ones(2, 4)).shape == (2, 4)
