"""bfloat16 inside a model, which the runtime has no kernels for."""

from __future__ import annotations

import pytest
import torch
from harness import EXPORT, TRACE, assert_parity, export, make_case, operators, run
from torch import nn
from torch.nn import functional

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.bfloat16_without_kernel import REMEDY, widen
from fairway.convert.remedies.contract import Match

DIMS = [{0: "batch"}]


class Inside(nn.Module):
    """Layers, matrix products, activations and arithmetic in bfloat16; float32 on both sides."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8).bfloat16()
        self.conv = nn.Conv1d(4, 4, 3, padding=1).bfloat16()
        self.norm = nn.LayerNorm(8).bfloat16()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.norm(functional.gelu(self.conv(self.linear(x.bfloat16()))))
        scores = (y @ y.transpose(1, 2) / 3).softmax(-1)
        z = torch.where(y > 0, y.exp(), y.clamp(-1, 1) ** 2)
        return (scores @ z).float(), z.mean(1).float(), (y.amax(-1) > 0.5)


class Plain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


def make(batch: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 4, 8, generator=torch.Generator().manual_seed(batch)),)


@pytest.mark.parametrize("route", [EXPORT, TRACE])
def test_the_runtime_cannot_load_the_file_without_it(route: Route) -> None:
    model = export(make_case(Inside().eval(), make(2), route), DIMS)
    with pytest.raises(Exception, match=r"NOT_IMPLEMENTED|INVALID_GRAPH"):
        run(model, make(2))


@pytest.mark.parametrize("route", [EXPORT, TRACE])
def test_parity_holds_with_it(route: Route) -> None:
    eager = Inside().eval()
    model = export(make_case(eager, make(2), route), DIMS, REMEDY)
    assert_parity(model, eager, make(2), make(1), make(5), atol=0.13)


def test_a_graph_without_bfloat16_is_refused_by_the_pass() -> None:
    model = export(make_case(Plain(), make(2)), DIMS)
    before = operators(model)
    assert not widen(model)
    assert operators(model) == before
    assert isinstance(REMEDY.detect(make_case(Plain(), make(2))), Match)


def test_applying_it_twice_changes_nothing_more() -> None:
    model = export(make_case(Inside().eval(), make(2)), DIMS, REMEDY)
    before = operators(model)
    assert not widen(model)
    assert operators(model) == before
