"""First states of recurrent layers built from Python numbers, through the TorchScript tracer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness import EXPORT, TRACE, assert_parity, export, make_case, operators
from torch import nn

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.rnn_batch_baked import REMEDY

DIMS = [{0: "batch", 1: "time"}]


class Zeros(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.rnn(x, torch.zeros(1, len(x), 4).to(x.device))


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 4, batch_first=True)
        self.hidden, self.cell = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(1, 1, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.rnn(x, hx=(self.hidden.expand(-1, len(x), -1), self.cell.repeat(1, len(x), 1)))[0]


class Given(nn.Module):
    """Rows that differ: taking one of them would be wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> Any:
        return self.rnn(x, hidden.expand(1, -1, -1))


class Nothing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.rnn(x)


def case_of(model: nn.Module, route: Route = TRACE) -> Any:
    return make_case(model.eval(), (torch.randn(2, 5, 3),), route)


@pytest.mark.parametrize("kind", [Zeros, Learned])
def test_the_batch_is_fixed_without_it(kind: type[nn.Module]) -> None:
    model = kind()
    exported = export(case_of(model), DIMS)
    assert_parity(exported, model, (torch.randn(2, 7, 3),), atol=1e-5)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        assert_parity(exported, model, (torch.randn(3, 5, 3),), atol=1e-5)


@pytest.mark.parametrize("kind", [Zeros, Learned])
def test_other_batches_agree_with_it(kind: type[nn.Module]) -> None:
    model = kind()
    exported = export(case_of(model), DIMS, REMEDY)
    assert_parity(exported, model, (torch.randn(3, 7, 3),), (torch.randn(1, 1, 3),), atol=1e-5)


def test_rows_that_differ_are_left_alone() -> None:
    model = Given().eval()
    case = make_case(model, (torch.randn(2, 5, 3), torch.randn(1, 2, 4)), TRACE)
    exported = export(case, [*DIMS, {1: "batch"}], REMEDY)
    assert_parity(exported, model, (torch.randn(3, 7, 3), torch.randn(1, 3, 4)), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "route", "reason"),
    [
        (Zeros(), EXPORT, "only the tracer is known to freeze a state unnoticed"),
        (nn.GRUCell(3, 4), TRACE, "the model has no nn.RNN, nn.GRU or nn.LSTM"),
        (Nothing(), TRACE, "no module of the model builds a state; the layers' own follows the batch"),
    ],
    ids=["exported", "cell", "own-state"],
)
def test_near_misses_are_refused(model: nn.Module, route: Route, reason: str) -> None:
    answer = REMEDY.detect(case_of(model, route))
    assert isinstance(answer, Refusal)
    assert answer.reason == reason


def test_a_state_made_by_the_layer_itself_needs_no_remedy() -> None:
    model = Nothing()
    exported = export(case_of(model), DIMS)
    assert_parity(exported, model, (torch.randn(3, 7, 3),), (torch.randn(1, 1, 3),), atol=1e-5)


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    model = Zeros()
    once = export(case_of(model), DIMS, REMEDY)
    twice = export(case_of(model), DIMS, REMEDY, REMEDY)
    assert operators(twice) == operators(once)
    assert_parity(twice, model, (torch.randn(3, 7, 3),), atol=1e-5)
    assert not model.rnn._forward_pre_hooks
    assert not model.rnn._forward_pre_hooks_with_kwargs
