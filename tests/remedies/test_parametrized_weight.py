"""Parametrized weights are computed once, in eval mode only."""

from __future__ import annotations

import copy

import pytest
import torch
from harness import EXPORT, STRICT, TRACE, applied, assert_parity, export, make_case, operators
from torch import nn
from torch.nn.utils import parametrizations

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.parametrized_weight import REMEDY

DIMS = [{0: "batch"}]


def turned() -> nn.Module:
    """Two copies of one layer, which share a class but not their weights."""
    torch.manual_seed(0)
    first = parametrizations.orthogonal(nn.Linear(4, 4))
    second = copy.deepcopy(first)
    with torch.no_grad():
        second.parametrizations.weight.original.add_(torch.randn(4, 4))
    return nn.Sequential(first, nn.Tanh(), second, parametrizations.weight_norm(nn.Linear(4, 3))).eval()


def make(batch: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 4),)


def test_the_computation_has_no_translation_without_it() -> None:
    with pytest.raises(Exception, match="matrix_exp"):
        export(make_case(turned(), make(3)), DIMS)


@pytest.mark.parametrize("route", [EXPORT, TRACE], ids=lambda r: r.name)
def test_each_copy_keeps_its_own_weight_and_nothing_is_computed(route: Route) -> None:
    model = turned()
    exported = export(make_case(model, make(3), route), DIMS, REMEDY)
    assert_parity(exported, model, make(3), make(1), atol=1e-5)
    assert set(operators(exported)) <= {"Gemm", "Tanh", "Transpose", "MatMul", "Add", "Constant", "Identity"}


def test_it_is_refused_in_training_mode_under_strict_capture_and_without_one() -> None:
    model = turned()
    strict = REMEDY.detect(make_case(model, make(3), STRICT))
    assert strict == Refusal("strict capture reads the property that would be replaced")
    model.train()
    assert REMEDY.detect(make_case(model, make(3))) == Refusal(
        "in training mode a parametrized weight may change with each call"
    )
    assert REMEDY.detect(make_case(nn.Linear(4, 4), make(3))) == Refusal("no weight is parametrized")


def test_applying_it_twice_changes_nothing_more_and_is_undone() -> None:
    model = turned()
    case = make_case(model, make(3))
    before = model[0].weight
    with applied(case, REMEDY):
        once = model[0].weight
        with applied(case, REMEDY):
            assert torch.equal(model[0].weight, once)
        assert model[0].weight is once
    assert torch.equal(once, before)
    with torch.no_grad():
        model[0].parametrizations.weight.original.add_(torch.randn(4, 4))
    assert not torch.equal(model[0].weight, before)
