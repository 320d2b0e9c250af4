"""Modules left in training mode, by every route."""

from __future__ import annotations

import copy

import pytest
import torch
from harness import EXPORT, TRACE, applied, assert_parity, export, make_case, operators
from torch import nn

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.training_mode import REMEDY

DIMS = [{0: "batch"}]


def mixed() -> nn.Sequential:
    """Dropout and one batch norm in training mode, a frozen batch norm in eval mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    model[1].eval()
    return model


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def in_eval(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).eval()


def test_the_file_is_in_training_mode_without_it() -> None:
    model = mixed()
    truth = in_eval(model)
    exported = export(make_case(model, (torch.randn(3, 4),)), DIMS)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_parity(exported, truth, (torch.randn(5, 4),), atol=1e-5)


def test_the_tracer_loses_the_modes_without_it() -> None:
    model = mixed()
    before = modes(model)
    export(make_case(model, (torch.randn(3, 4),), TRACE), DIMS)
    assert modes(model) != before


@pytest.mark.parametrize("route", [EXPORT, TRACE], ids=lambda r: r.name)
def test_the_file_agrees_with_eval_mode_and_the_modes_come_back(route: Route) -> None:
    model = mixed()
    before, statistics = modes(model), copy.deepcopy(model.state_dict())
    exported = export(make_case(model, (torch.randn(3, 4),), route), DIMS, REMEDY)
    assert modes(model) == before
    assert all(torch.equal(value, statistics[name]) for name, value in model.state_dict().items())
    assert_parity(exported, in_eval(model), (torch.randn(5, 4),), (torch.randn(1, 4),), atol=1e-5)


def test_the_modes_come_back_after_an_error() -> None:
    model = mixed()
    before = modes(model)

    def fail() -> None:
        with applied(make_case(model, (torch.randn(3, 4),)), REMEDY):
            assert not any(modes(model))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert modes(model) == before


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Dropout().eval(), "every module is in eval mode"),
        (nn.Sequential(nn.Linear(4, 4)), "the modules in training mode compute the same in both modes"),
    ],
    ids=["eval", "same-in-both"],
)
def test_near_misses_are_refused(model: nn.Module, reason: str) -> None:
    answer = REMEDY.detect(make_case(model, (torch.randn(3, 4),)))
    assert isinstance(answer, Refusal)
    assert answer.reason == reason


def test_applying_it_twice_changes_nothing_more() -> None:
    model = mixed()
    before, case = modes(model), make_case(model, (torch.randn(3, 4),))
    match = REMEDY.detect(case)
    once = export(case, DIMS, REMEDY)
    with REMEDY.apply(case, match), REMEDY.apply(case, match):  # type: ignore[arg-type]
        twice = export(case, DIMS)
    assert operators(twice) == operators(once)
    assert modes(model) == before
