"""A part that is moved inside `forward`, to where it is already."""

from __future__ import annotations

import pytest
import torch
from harness import TRACE, applied, assert_parity, export, make_case
from torch import nn

from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.module_moved import REMEDY, is_in_place

DIMS = [{0: "batch"}]


class Moves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gate = self.gate.to(torch.float32)
        return self.gate(x.to(torch.float32)).softmax(-1)


def make(batch: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 4),)


def test_it_cannot_be_captured_without_it() -> None:
    with pytest.raises(Exception, match="swap"):
        export(make_case(Moves().eval(), make(3)), DIMS)


def test_parity_holds_with_it() -> None:
    model = Moves().eval()
    case = make_case(model, make(3))
    exported = export(case, DIMS, REMEDY)
    assert_parity(exported, model, make(3), make(1), atol=1e-6)
    assert case.used == {REMEDY.name}


def test_it_is_not_listed_if_nothing_is_moved() -> None:
    case = make_case(nn.Linear(4, 3).eval(), make(3))
    export(case, DIMS, REMEDY)
    assert case.used == set()
    assert case.listed_if_used == {REMEDY.name}


@pytest.mark.parametrize(
    ("args", "expected"),
    [((torch.float32,), True), ((torch.float64,), False), (("cpu",), True), (("meta",), False)],
)
def test_only_a_move_that_changes_nothing_is_left_out(args: tuple[object, ...], expected: bool) -> None:
    assert is_in_place(nn.BatchNorm1d(3), args, {}) is expected


def test_a_move_that_changes_the_type_is_made() -> None:
    case = make_case(nn.Linear(4, 3), make(3))
    with applied(case, REMEDY):
        assert nn.Linear(4, 3).to(torch.float64).weight.dtype == torch.float64
    assert case.used == set()


def test_it_is_refused_under_the_tracer() -> None:
    assert isinstance(REMEDY.detect(make_case(Moves(), make(3), TRACE)), Refusal)


def test_applying_it_twice_changes_nothing_more_and_modules_move_as_before_afterwards() -> None:
    original = nn.Module.to
    case = make_case(Moves(), make(3))
    with applied(case, REMEDY), applied(case, REMEDY):
        linear = nn.Linear(4, 3)
        assert linear.to(torch.float32) is linear
    assert nn.Module.to is original
