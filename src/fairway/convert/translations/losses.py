"""Cross entropy with smoothed labels or class probabilities, and Hamming's window.

torch leaves label_smoothing out of cross entropy, reads class probabilities as classes, and uses ONNX's HammingWindow,
whose numbers are 25/46 and 21/46 instead of PyTorch's 0.54 and 0.46. It warns of none of these.
"""

from __future__ import annotations

import math

import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    KIND,
    GraphValue,
    Table,
    count_up,
    is_float,
    is_none,
    make_ints,
    make_number,
)

NONE, MEAN = 0, 1


def cross_entropy(
    self: GraphValue,
    target: GraphValue,
    weight: GraphValue = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> GraphValue:
    axis = min(len(self.shape) - 1, 1)
    surprise = op.Neg(op.LogSoftmax(self, axis=axis))
    classes = op.CastLike(op.Squeeze(op.Shape(self, start=axis, end=axis + 1), [0]), self)
    spread = op.Div(make_number(label_smoothing, self), classes)
    keep = make_number(1.0 - label_smoothing, self)
    along = [-1 if dim == axis else 1 for dim in range(len(self.shape))]
    shaped = make_number(1.0, self) if weight is None else op.Reshape(weight, along)
    weighed = op.Mul(surprise, shaped)
    if is_float(target):
        smoothed = op.Add(op.Mul(target, keep), spread)
        loss = op.ReduceSum(op.Mul(weighed, smoothed), [axis], keepdims=0)
        count = op.CastLike(op.Size(loss), self)
        return _reduce(loss, count, reduction)
    ignored = op.Equal(target, make_number(ignore_index, target))
    zero = make_number(0.0, self)
    safe = op.Unsqueeze(op.Where(ignored, make_number(0, target), target), [axis])
    own = op.Squeeze(op.GatherElements(weighed, safe, axis=axis), [axis])
    loss = op.Add(op.Mul(own, keep), op.Mul(op.ReduceSum(weighed, [axis], keepdims=0), spread))
    spreads = op.Expand(shaped, op.Shape(self))
    heavy = op.Where(ignored, zero, op.Squeeze(op.GatherElements(spreads, safe, axis=axis), [axis]))
    return _reduce(op.Where(ignored, zero, loss), op.ReduceSum(heavy, keepdims=0), reduction)


def _reduce(loss: GraphValue, count: GraphValue, reduction: int) -> GraphValue:
    if reduction == NONE:
        return loss
    total = op.ReduceSum(loss, keepdims=0)
    return op.Div(total, count) if reduction == MEAN else total


def hamming_window(window_length: GraphValue, dtype: int = -1, **_: GraphValue) -> GraphValue:
    return hamming_periodic(window_length, True, dtype=dtype)


def hamming_periodic(
    window_length: GraphValue, periodic: bool, alpha: float = 0.54, beta: float = 0.46, dtype: int = -1, **_: GraphValue
) -> GraphValue:
    kind = KIND.FLOAT if is_none(dtype) else KIND(dtype)
    length = make_ints([window_length]) if isinstance(window_length, int) else op.Reshape(window_length, [1])
    span = op.Max(length if periodic else op.Sub(length, [1]), make_ints([1]))
    turn = op.Div(op.Cast(count_up(length), to=KIND.DOUBLE), op.Cast(span, to=KIND.DOUBLE))
    wave = op.Cos(op.Mul(turn, make_number(2 * math.pi, KIND.DOUBLE)))
    window = op.Sub(make_number(alpha, KIND.DOUBLE), op.Mul(make_number(beta, KIND.DOUBLE), wave))
    alone = op.Equal(length, [1])  # PyTorch's window of one element is one
    return op.Cast(op.Where(alone, make_number(1.0, KIND.DOUBLE), window), to=kind)


TABLE: Table = {
    torch.ops.aten.cross_entropy_loss.default: cross_entropy,
    torch.ops.aten.hamming_window.default: hamming_window,
    torch.ops.aten.hamming_window.periodic: hamming_periodic,
    torch.ops.aten.hamming_window.periodic_alpha: hamming_periodic,
    torch.ops.aten.hamming_window.periodic_alpha_beta: hamming_periodic,
}
