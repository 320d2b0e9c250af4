"""Distances between rows: cdist, pdist.

torch translates cdist only where it becomes a matrix product (more than 25 rows). Here every difference is taken, which
is as exact as PyTorch's own loop; it costs one number for each pair and feature.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import Table, counted, number, size


def cdist(x1: Any, x2: Any, p: float, compute_mode: int | None = None) -> Any:
    return _length(op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3])), p, x1)


def pdist(self: Any, p: float = 2.0) -> Any:
    """Each pair of rows once, in the order of the upper triangle."""
    here = counted(size(self, 0))
    first, second = op.Split(op.NonZero(op.Less(op.Unsqueeze(here, [1]), here)), axis=0, num_outputs=2)
    rows = (op.Gather(self, op.Squeeze(one, [0]), axis=0) for one in (first, second))
    return _length(op.Sub(*rows), p, self)


def _length(apart: Any, p: float, of: Any) -> Any:
    if p == 0:
        return op.ReduceSum(op.CastLike(op.Not(op.Equal(apart, number(0.0, of))), of), [-1], keepdims=0)
    if p == math.inf:
        return op.ReduceMax(op.Abs(apart), [-1], keepdims=0)
    if p == 1:
        return op.ReduceSum(op.Abs(apart), [-1], keepdims=0)
    if p == 2:
        return op.Sqrt(op.ReduceSum(op.Mul(apart, apart), [-1], keepdims=0))
    powers = op.Pow(op.Abs(apart), number(float(p), of))
    return op.Pow(op.ReduceSum(powers, [-1], keepdims=0), number(1.0 / p, of))


TABLE: Table = {
    torch.ops.aten._cdist_forward.default: cdist,
    torch.ops.aten._pdist_forward.default: pdist,
}
