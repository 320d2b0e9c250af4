"""Attention with rows that are masked whole, through the dynamo exporter."""

from __future__ import annotations

import pytest
import torch
from harness import EXPORT, TRACE, assert_parity, export, make_case, operators
from torch import nn
from torch.nn import functional

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.fully_masked_rows import REMEDY

DIMS = [{0: "batch", 2: "time"}, {0: "batch", 2: "time", 3: "time"}]


class Masked(nn.Module):
    """One mask in three forms: bool, minus infinity, and the lowest finite number, which masks no row whole."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, ...]:
        none = torch.zeros_like(keep, dtype=x.dtype)
        infinite = none.masked_fill(~keep, float("-inf"))
        lowest = none.masked_fill(~keep, torch.finfo(x.dtype).min)
        attend = functional.scaled_dot_product_attention
        return attend(x, x, x, keep), attend(x, x, x, infinite, scale=0.7), attend(x, x, x, lowest)


class Shapes(nn.Module):
    """Without a head dim, causal, and with fewer key heads than query heads."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, ...]:
        attend, flat = functional.scaled_dot_product_attention, x[:, 0]
        shared = x[:, :2]
        return (
            attend(flat, flat, flat, keep[:, 0]),
            attend(x, x, x, is_causal=True),
            attend(x, shared, shared, enable_gqa=True),
        )


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        flat = x[:, 0]
        return self.attention(flat, flat, flat, key_padding_mask=~keep[:, 0, 0], need_weights=False)[0]


def make(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    """The first of the batch has everything masked, the others less and less."""
    keep = torch.arange(time)[None, None, None] < torch.arange(batch)[:, None, None, None]
    return torch.randn(batch, 4, time, 8), keep.expand(batch, 1, time, time)


@pytest.mark.parametrize("opset", [18, 23])
def test_rows_masked_whole_differ_without_it(opset: int) -> None:
    exported = export(make_case(Masked(), make(2, 5), Route("export", opset=opset)), DIMS)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_parity(exported, Masked(), make(3, 7), atol=1e-5)


def test_attention_without_a_head_dim_does_not_convert_without_it() -> None:
    with pytest.raises(Exception, match="Failed to convert the exported program"):
        export(make_case(Shapes(), make(2, 5)), DIMS)


@pytest.mark.parametrize(("kind", "opset"), [(Masked, 18), (Masked, 23), (Shapes, 18), (Layer, 23)])
def test_all_rows_agree_with_it(kind: type[nn.Module], opset: int) -> None:
    model = kind().eval()
    exported = export(make_case(model, make(2, 5), Route("export", opset=opset)), DIMS, REMEDY)
    assert_parity(exported, model, make(3, 7), make(4, 2), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "route", "reason"),
    [
        (Masked(), TRACE, "the TorchScript exporter has its own translation of attention"),
        (nn.Linear(2, 2), EXPORT, "no code of the model calls scaled_dot_product_attention"),
    ],
    ids=["traced", "no-attention"],
)
def test_near_misses_are_refused(model: nn.Module, route: Route, reason: str) -> None:
    assert REMEDY.detect(make_case(model, make(2, 5), route)) == Refusal(reason)


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    case = make_case(Masked(), make(2, 5))
    once = export(case, DIMS, REMEDY)
    twice = export(case, DIMS, REMEDY, REMEDY)
    assert operators(twice) == operators(once)
    assert_parity(twice, Masked(), make(3, 7), atol=1e-5)
    assert case.translations == {}
