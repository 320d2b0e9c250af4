"""Distances between rows: cdist, pdist.

torch translates cdist only if it becomes a matrix product (more than 25 rows). Here every difference is computed, which
is as exact as PyTorch's own loop. It costs one number for each pair and feature.
"""

from __future__ import annotations

import math

from onnxscript import opset18 as op

from fairway.convert.translations.builders import GraphValue, Table, count_up, get_size, make_number
from fairway.torch_internals import aten_cdist_forward, aten_pdist_forward


def cdist(x1: GraphValue, x2: GraphValue, p: float, compute_mode: int | None = None) -> GraphValue:
    return _compute_norm(op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3])), p, x1)


def pdist(self: GraphValue, p: float = 2.0) -> GraphValue:
    """Take each pair of rows once, in the order of the upper triangle."""
    here = count_up(get_size(self, 0))
    first, second = op.Split(op.NonZero(op.Less(op.Unsqueeze(here, [1]), here)), axis=0, num_outputs=2)
    rows = (op.Gather(self, op.Squeeze(index, [0]), axis=0) for index in (first, second))
    # ONNX Runtime keeps a dim that it reduces if the tensor is empty.
    return op.Reshape(_compute_norm(op.Sub(*rows), p, self), [-1])


def _compute_norm(apart: GraphValue, p: float, of: GraphValue) -> GraphValue:
    if p == 0:
        return op.ReduceSum(op.CastLike(op.Not(op.Equal(apart, make_number(0.0, of))), of), [-1], keepdims=0)
    if p == math.inf:
        return op.ReduceMax(op.Abs(apart), [-1], keepdims=0)
    if p == 1:
        return op.ReduceSum(op.Abs(apart), [-1], keepdims=0)
    if p == 2:
        return op.Sqrt(op.ReduceSum(op.Mul(apart, apart), [-1], keepdims=0))
    powers = op.Pow(op.Abs(apart), make_number(float(p), of))
    return op.Pow(op.ReduceSum(powers, [-1], keepdims=0), make_number(1.0 / p, of))


TABLE: Table = {
    aten_cdist_forward: cdist,
    aten_pdist_forward: pdist,
}
