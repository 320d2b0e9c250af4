"""Transformer stacks with a mask, by every route."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness import EXPORT, STRICT, TRACE, assert_parity, export, make_case, operators
from torch import nn

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.attention_length_baked import REMEDY as ATTENTION
from fairway.convert.remedies.causal_undecided import REMEDY
from fairway.convert.remedies.contract import Refusal

BOTH, SQUARE = {0: "batch", 1: "time"}, {0: "time", 1: "time"}


class Decoder(nn.Module):
    """Its mask is an input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stack = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.stack(x, x, tgt_mask=mask)


class Encoder(nn.Module):
    """Its mask is made inside."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stack(x, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[0]))


def causal(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, time, 8), nn.Transformer.generate_square_subsequent_mask(time)


def open_mask(batch: int, time: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, time, 8), torch.zeros(time, time)


@pytest.mark.parametrize("route", [EXPORT, STRICT], ids=lambda r: r.name)
def test_the_capture_cannot_decide_without_it(route: Route) -> None:
    with pytest.raises(Exception, match="Could not guard on data-dependent expression"):
        export(make_case(Decoder().eval(), causal(2, 5), route), [BOTH, SQUARE])


def test_the_tracer_writes_a_file_without_the_mask_without_it() -> None:
    exported = export(make_case(Decoder().eval(), causal(2, 5), TRACE), [BOTH, SQUARE], ATTENTION)
    assert [bool(value.uses()) for value in exported.graph.inputs] == [True, False]


@pytest.mark.parametrize("route", [EXPORT, STRICT, TRACE], ids=lambda r: r.name)
def test_causal_and_other_masks_agree_with_it(route: Route) -> None:
    model = Decoder().eval()
    also = () if route is EXPORT else (ATTENTION,)
    exported = export(make_case(model, causal(2, 5), route), [BOTH, SQUARE], REMEDY, *also)
    assert_parity(exported, model, causal(3, 7), open_mask(2, 5), open_mask(4, 3), atol=1e-5)


def test_a_mask_made_inside_agrees_with_it() -> None:
    model, example = Encoder().eval(), (torch.randn(5, 2, 8),)
    exported = export(make_case(model, example), [{0: "time", 1: "batch"}], REMEDY)
    assert_parity(exported, model, (torch.randn(7, 3, 8),), (torch.randn(2, 4, 8),), atol=1e-5)


def test_the_script_capture_is_refused() -> None:
    answer = REMEDY.detect(make_case(Decoder(), causal(2, 5), Route("script")))
    assert answer == Refusal("the script capture would have to compile the replacement")


def test_a_single_layer_is_refused() -> None:
    answer = REMEDY.detect(make_case(nn.TransformerDecoderLayer(8, 2), causal(2, 5)))
    assert isinstance(answer, Refusal)
    assert answer.reason == "the model has no nn.TransformerEncoder or -Decoder; single layers do not ask"


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    stacks: Any = torch.nn.modules.transformer
    original, model = stacks._detect_is_causal_mask, Decoder().eval()
    once = export(make_case(model, causal(2, 5)), [BOTH, SQUARE], REMEDY)
    twice = export(make_case(model, causal(2, 5)), [BOTH, SQUARE], REMEDY, REMEDY)
    assert operators(twice) == operators(once)
    assert_parity(twice, model, open_mask(3, 7), atol=1e-5)
    assert stacks._detect_is_causal_mask is original
