"""nn.MultiheadAttention and the Transformer layers through the TorchScript tracer, over length and batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import EXPORT, STRICT, TRACE, assert_parity, export, make_case, operators
from torch import nn
from torch.nn import functional

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.attention_length_baked import REMEDY
from fairway.convert.remedies.contract import Refusal

BOTH = {0: "batch", 1: "time"}


class Call(nn.Module):
    """A layer, called as the test says."""

    def __init__(self, layer: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.call(self.layer, *tensors)


def attention(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.MultiheadAttention(8, 2, batch_first=True, **options).eval()


def itself(layer: nn.Module, x: torch.Tensor) -> Any:
    return layer(x, x, x)


def masked(layer: nn.Module, x: torch.Tensor, padding: torch.Tensor, mask: torch.Tensor) -> Any:
    return layer(x, x, x, key_padding_mask=padding, attn_mask=mask, need_weights=False)[0]


def plain(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, time, 8),)


def pair(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, time, 8), torch.randn(batch, time + 1, 8)


def with_masks(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    padding = torch.arange(time)[None] > torch.arange(batch)[:, None]
    return *plain(batch, time), padding, torch.zeros(time, time, dtype=torch.bool)


LAYERS = {
    "self": (Call(attention(), itself), plain, [BOTH]),
    "per-head": (Call(attention(), lambda m, x: m(x, x, x, average_attn_weights=False)), plain, [BOTH]),
    "bias-kv": (Call(attention(add_bias_kv=True), itself), plain, [BOTH]),
    "zero-attn": (Call(attention(add_zero_attn=True, bias=False), itself), plain, [BOTH]),
    "cross": (Call(attention(), lambda m, x, y: m(x, y, y)), pair, [BOTH, {0: "batch", 1: "source"}]),
    "masks": (Call(attention(), masked), with_masks, [BOTH, BOTH, {0: "time", 1: "time"}]),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), plain, [BOTH]),
    "decoder": (
        nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True),
        pair,
        [BOTH, {0: "batch", 1: "source"}],
    ),
}


@pytest.mark.parametrize("name", ["cross", "encoder", "decoder"])
def test_the_export_fails_or_fixes_the_length_without_it(name: str) -> None:
    model, make, dims = LAYERS[name]
    expected = "cannot be reshaped" if name == "cross" else "is not supported"
    with pytest.raises(Exception, match=expected):
        assert_parity(export(make_case(model.eval(), make(2, 5), TRACE), dims), model, make(3, 7), atol=1e-5)


def test_the_fused_operator_is_gone_from_strict_capture_with_it() -> None:
    model, make, dims = LAYERS["encoder"]
    case = make_case(model.eval(), make(2, 5), STRICT)
    with pytest.raises(Exception, match="Failed to convert the exported program"):
        export(case, dims)
    assert_parity(export(case, dims, REMEDY), model, make(3, 7), make(4, 2), atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_other_lengths_and_batches_agree_with_it(name: str) -> None:
    model, make, dims = LAYERS[name]
    exported = export(make_case(model.eval(), make(2, 5), TRACE), dims, REMEDY)
    assert_parity(exported, model, make(3, 7), make(1, 1), make(4, 2), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "route", "reason"),
    [
        (attention(), EXPORT, "the defect is not known under the export capture"),
        (nn.Linear(8, 8), TRACE, "the model has no nn.MultiheadAttention"),
        (
            attention(kdim=6, vdim=6),
            TRACE,
            "query, key and value have separate projections, which the tracer follows",
        ),
    ],
    ids=["exported", "no-attention", "projected-apart"],
)
def test_near_misses_are_refused(model: nn.Module, route: Route, reason: str) -> None:
    answer = REMEDY.detect(make_case(model, plain(2, 5), route))
    assert isinstance(answer, Refusal)
    assert answer.reason == reason


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    model, make, dims = LAYERS["self"]
    packed = functional._in_projection_packed
    once = export(make_case(model, make(2, 5), TRACE), dims, REMEDY)
    twice = export(make_case(model, make(2, 5), TRACE), dims, REMEDY, REMEDY)
    assert operators(twice) == operators(once)
    assert_parity(twice, model, make(3, 7), atol=1e-5)
    assert functional._in_projection_packed is packed
    assert torch.backends.mha.get_fastpath_enabled()
