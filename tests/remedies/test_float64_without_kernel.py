"""Activations in float64, which the runtime has no kernels for."""

from __future__ import annotations

import pytest
import torch
from harness import EXPORT, TRACE, assert_parity, export, make_case, operators, run
from torch import nn
from torch.nn import functional

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Match
from fairway.convert.remedies.float64_without_kernel import ACTIVATIONS, REMEDY, write_out

DIMS = [{0: "batch"}]


class Activations(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        f = functional
        wide = f.gelu(x), f.gelu(x, approximate="tanh"), f.softplus(x), f.mish(x), f.leaky_relu(x, 0.1)
        return torch.erf(x), f.elu(x, 0.3), f.selu(x), *wide


class Error(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erf(x)


def make(batch: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor]:
    odd = torch.tensor([0.0, -0.0, 1e-9, 1.0, -1.0, 0.9999, 3.0, 6.0, 27.0, -40.0], dtype=dtype)
    return (torch.cat([torch.randn(batch, 10, dtype=dtype) * 3, odd[None]]),)


@pytest.mark.parametrize("route", [EXPORT, Route("export", opset=20), TRACE])
def test_the_runtime_can_load_the_file_only_with_it(route: Route) -> None:
    case = make_case(Activations(), make(2), route)
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        run(export(case, DIMS), make(2))
    model = export(case, DIMS, REMEDY)
    assert not set(operators(model)) & set(ACTIVATIONS)
    # torch.onnx rounds the numbers that it writes into graphs itself (0.5, √2…) to float32.
    assert_parity(model, Activations(), make(2), make(1), make(0), atol=2e-7)


def test_erf_is_right_to_the_last_digits() -> None:
    model = export(make_case(Error(), make(2)), DIMS, REMEDY)
    points = torch.linspace(-7, 7, 4001, dtype=torch.float64).reshape(-1, 1).expand(-1, 10).contiguous()
    odd = torch.full((1, 10), float("nan"), dtype=torch.float64)
    odd[0, :2] = torch.tensor([float("inf"), -float("inf")])
    assert_parity(model, Error(), (points,), (odd,), atol=3e-16)


def test_a_graph_in_float32_is_refused_by_the_pass() -> None:
    model = export(make_case(Error(), make(2, torch.float32)), DIMS)
    assert not write_out(model)
    assert "Erf" in operators(model)
    assert isinstance(REMEDY.detect(make_case(Error(), make(2))), Match)


def test_applying_it_twice_changes_nothing_more() -> None:
    model = export(make_case(Error(), make(2)), DIMS, REMEDY)
    before = operators(model)
    assert not write_out(model)
    assert operators(model) == before
