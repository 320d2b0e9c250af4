"""Attention returns zeros for rows that are fully masked, as PyTorch does, and accepts tensors of three dims.

`F.scaled_dot_product_attention` returns zeros for a query whose keys are all masked by `False` or minus infinity. Below
opset 23, torch 2.13's exporter writes a file that returns the values' average in the one case and NaN in the other.
From 23 on it writes ONNX's Attention. With that, onnxruntime 1.31 treats a row of the lowest finite number as empty,
unlike PyTorch, and refuses the masks of nn.MultiheadAttention. Queries without a head dim fail to convert at every
opset. So the operator is written out: scores, mask, softmax, and zeros if a row's largest score is minus infinity.

The file then has no fused Attention node of opset 23. Refuses under the TorchScript exporter, which is right for bool
masks and takes no translations, and if no code of the model calls attention.
"""

from __future__ import annotations

import inspect
import math
import sys
from contextlib import AbstractContextManager

import torch

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, add_translations
from fairway.diagnostics import Code, Where
from fairway.torch_internals import GraphValue

ATTENTION_LAYERS = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
MENTIONS = ("scaled_dot_product_attention", "sdpa", "multi_head_attention_forward")


def translate(
    query: GraphValue,
    key: GraphValue,
    value: GraphValue,
    attn_mask: GraphValue = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> GraphValue:
    """Attention over any number of leading dims."""
    from onnxscript import opset18 as op

    rank, width = len(query.shape), query.shape[-1]
    if enable_gqa:
        key, value = (_repeat_heads(op, part, query) for part in (key, value))
    factor = scale if scale is not None else 1.0 / math.sqrt(width)
    # Half of the factor on either side, as torch does, keeps half-precision scores in range.
    half = op.CastLike(op.Constant(value_float=math.sqrt(abs(factor))), query)
    keys = op.Transpose(key, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = op.MatMul(op.Mul(query, half), op.Mul(keys, half if factor >= 0 else op.Neg(half)))
    lowest = op.CastLike(op.Constant(value_float=-math.inf), scores)
    if is_causal:
        ones = op.Expand(op.Constant(value_int=1), op.Shape(scores, start=rank - 2))
        scores = op.Where(op.Cast(op.Trilu(ones, upper=0), to=9), scores, lowest)
    if attn_mask is not None:
        masked = attn_mask.dtype is not None and attn_mask.dtype.name == "BOOL"
        scores = op.Where(attn_mask, scores, lowest) if masked else op.Add(scores, attn_mask)
    empty = op.Equal(op.ReduceMax(scores, [-1], keepdims=1), lowest)
    zero = op.CastLike(op.Constant(value_float=0.0), scores)
    return op.MatMul(op.Where(empty, zero, op.Softmax(scores, axis=-1)), value)


def _repeat_heads(op: GraphValue, part: GraphValue, query: GraphValue) -> GraphValue:
    """Repeat each key or value head once for each of its query heads: [batch, heads, length, width]."""
    heads, groups = query.shape[1], query.shape[1] // part.shape[1]
    rest = op.Shape(part, start=2)
    copies = op.Concat(op.Shape(part, start=0, end=2), op.Constant(value_ints=[groups]), rest, axis=0)
    wide = op.Expand(op.Unsqueeze(part, [2]), copies)
    return op.Reshape(wide, op.Concat(op.Constant(value_ints=[0, heads]), rest, axis=0))


def detect(case: Case) -> Match | Refusal:
    if case.route.is_traced:
        return Refusal("the TorchScript exporter has its own translation of attention")
    for name, module in case.model.named_modules():
        if isinstance(module, ATTENTION_LAYERS) or _calls_attention(type(module).__module__):
            place = (Where(module=name or type(module).__name__),)
            return Match("attention written out, fully masked rows give zeros", place)
    return Refusal("no code of the model calls scaled_dot_product_attention")


def _calls_attention(home: str) -> bool:
    if home.startswith("torch."):
        return False
    try:
        source = inspect.getsource(sys.modules[home])
    except (OSError, TypeError, KeyError):  # no source, as for code typed at a prompt or made by exec: it may
        return True
    return any(mention in source for mention in MENTIONS)


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return add_translations(case, {torch.ops.aten.scaled_dot_product_attention.default: translate})


REMEDY = Remedy(
    name="fully_masked_rows",
    cures=Code.FULLY_MASKED_ROWS,
    title="Writes attention out, with zeros for fully masked rows",
    stage="translation",
    affected={"torch": "==2.13.*"},
    upstream=("microsoft/onnxscript#2479",),
    safety="Scores, mask, softmax, product: the operator's definition, with its zeros for fully masked rows.",
    detect=detect,
    apply=apply,
    order=40,
)
