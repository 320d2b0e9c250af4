"""A number minus an integer tensor, through the dynamo exporter."""

from __future__ import annotations

import pytest
import torch
from harness import EXPORT, TRACE, assert_parity, export, make_case, operators
from torch import nn

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Match, Refusal
from fairway.convert.remedies.integer_mask_arithmetic import NUMBER_MINUS, REMEDY
from fairway.diagnostics import Finding

DIMS = [{0: "batch", 1: "time"}] * 2


class Inverted(nn.Module):
    """The attention mask of many encoders, and what must keep its type beside it."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = (1.0 - mask) * -10000.0
        return x + hidden, 1 - mask, 1 - x, torch.rsub(mask, 3, alpha=2), x.shape[1] - mask, 2.5 - mask


def make(batch: int, time: int, dtype: torch.dtype = torch.int64) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, time), torch.randint(0, 2, (batch, time)).to(dtype)


def test_the_translation_fails_without_it() -> None:
    with pytest.raises(Exception, match=r"Cannot find a compatible OpOverload for aten.sub"):
        export(make_case(Inverted(), make(2, 5)), DIMS)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_values_and_types_agree_with_it(dtype: torch.dtype) -> None:
    exported = export(make_case(Inverted(), make(2, 5, dtype)), DIMS, REMEDY)
    assert_parity(exported, Inverted(), make(3, 7, dtype), make(1, 1, dtype), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "route", "reason"),
    [
        (Inverted(), TRACE, "the TorchScript exporter promotes types by itself"),
        (nn.Linear(2, 2), EXPORT, "no code of the model subtracts a tensor from a float number"),
    ],
    ids=["traced", "nothing-subtracted"],
)
def test_near_misses_are_refused(model: nn.Module, route: Route, reason: str) -> None:
    assert REMEDY.detect(make_case(model, make(2, 5), route)) == Refusal(reason)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("(1.0 - mask)", True),
        ("1. - attention_mask", True),
        ("torch.rsub(mask, 2)", True),
        ("x - 1.0", False),
        ("version1.0 - x", False),
    ],
)
def test_the_line_is_found_in_the_source(line: str, found: bool) -> None:
    assert bool(NUMBER_MINUS.search(line)) is found


def test_an_earlier_failure_is_enough() -> None:
    case = make_case(nn.Linear(2, 2), make(2, 5))
    case.findings = (Finding("FW305", "Cannot find a compatible OpOverload for aten.sub"),)
    assert isinstance(REMEDY.detect(case), Match)


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    case = make_case(Inverted(), make(2, 5))
    once = export(case, DIMS, REMEDY)
    twice = export(case, DIMS, REMEDY, REMEDY)
    assert operators(twice) == operators(once)
    assert_parity(twice, Inverted(), make(3, 7), atol=1e-6)
    assert case.translations == {}
