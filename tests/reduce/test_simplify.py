"""Sizes, dtypes and constants become plain unless the failure depends on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.draw import draw_like
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.reproducer import write_script
from fairway.debug.reduce.simplify import use_plain_constants, use_plain_dtypes, use_small_sizes
from fairway.judge.runtimes.eager import set_export_flags
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
    return record_calls(subject, subject.make(subject.example, 1, "normal"))


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
    small = use_small_sizes(program(), runs(lambda p: True), lambda: False)
    (weight,) = small.weights.values()
    assert max(weight.shape) < 8
    (ref,) = small.inputs
    assert small.seen[ref].shape[:2] == program().seen[ref].shape[:2]
    view = next(call for call in small.calls if call.name.endswith("view"))
    assert 48 not in view.args


def test_what_was_drawn_is_drawn_at_the_small_size_too() -> None:
    full = program()
    full = replace(full, weights={ref: draw_like(tensor) for ref, tensor in full.weights.items()})
    for step in (use_small_sizes, use_plain_dtypes):
        full = step(full, runs(lambda p: True), lambda: False)
        (weight,) = full.weights.values()
        assert torch.equal(weight, draw_like(weight))


def test_a_size_that_matters_stays() -> None:
    small = use_small_sizes(program(), runs(lambda p: next(iter(p.weights.values())).shape[1] == 48), lambda: False)
    assert next(iter(small.weights.values())).shape[1] == 48


def test_a_rare_dtype_becomes_a_common_one_in_arguments_too() -> None:
    plain = use_plain_dtypes(program(), runs(lambda p: True), lambda: False)
    assert next(iter(plain.weights.values())).dtype == torch.float32
    assert not any(torch.float64 in call.args for call in plain.calls)


def test_constants_go_unless_the_failure_hangs_on_them() -> None:
    def summed(candidate: Program) -> bool:
        return any(call.kwargs.get("keepdim") for call in candidate.calls)

    plain = use_plain_constants(program(), runs(summed), lambda: False)
    given = {call.name.split(".")[-1]: (call.args, dict(call.kwargs)) for call in plain.calls}
    assert len(given["leaky_relu"][0]) == 1
    assert given["sum"][1]["keepdim"] is True


class Reckons(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[0].roll(x.shape[1] // 2 - 1, 0)


def test_what_python_writes_with_two_operands_keeps_both() -> None:
    """A candidate that no script can be written of is none."""
    subject = build_subject(Reckons(), ["x: float32[batch, time, 16]"], bounds={"batch": (1, 4), "time": (1, 9)})
    full = record_calls(subject, subject.make(subject.example, 1, "normal"))
    plain = use_plain_constants(full, lambda p: bool(write_script(p, "dynamo", "t")), lambda: False)
    given = [len(call.args) for call in plain.calls if call.name in ("floordiv", "sub") or "getitem" in call.name]
    assert given == [2, 2, 2]


def test_time_that_is_up_leaves_all_as_it_is() -> None:
    full = program()
    for step in (use_plain_constants, use_plain_dtypes, use_small_sizes):
        assert step(full, lambda p: True, lambda: True) is full


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flip(1) if torch.compiler.is_exporting() else x.roll(1, 1)


def test_only_a_model_that_asks_learns_of_the_export() -> None:
    subject = build_subject(Asks(), ["x: float32[batch, 4]"], bounds={"batch": (1, 4)})
    tensors = subject.make(subject.example, 1, "normal")
    with set_export_flags():
        reported = record_calls(subject, tensors)
    assert [call.name for call in reported.calls] == ["torch.Tensor.flip"]
    assert [call.name for call in record_calls(subject, tensors).calls] == ["torch.Tensor.roll"]


def test_weights_keep_whether_they_ask_for_gradients() -> None:
    full = program()
    assert [p.requires_grad for p in replay(full).parameters()] == [True]
    assert not [*replay(full.without_gradients()).parameters()]
    assert "torch.nn.Parameter(" in write_script(full, "dynamo", "t")
    assert "torch.nn.Parameter(" not in write_script(full.without_gradients(), "dynamo", "t")


@torch.library.custom_op("reduce_test::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


def test_an_operator_that_a_library_brought_is_declared_in_the_script() -> None:
    class Brought(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.reduce_test.twice(x)

    subject = build_subject(Brought(), ["x: float32[batch, 4]"], bounds={"batch": (1, 4)})
    script = write_script(record_calls(subject, subject.make(subject.example, 1, "normal")), "dynamo", "t")
    head = script.partition("def seed")[0].replace("reduce_test", "reduce_test_again")
    exec(head, {})
    with torch._subclasses.FakeTensorMode():
        assert torch.ops.reduce_test_again.twice(torch.ones(2, 4)).shape == (2, 4)
    assert torch.ops.reduce_test_again.twice(torch.ones(2, 4)).shape == (2, 4)
