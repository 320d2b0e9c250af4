"""Counts and variances: bincount, runs of equal elements, histc, var and std.

torch's bincount takes no weights and no symbolic length, and its histc no range from the data. If there are fewer
elements than the correction, its variance divides by a negative number, but PyTorch divides by zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    KIND,
    GraphValue,
    Table,
    cast,
    count_up,
    flatten,
    make_ints,
    make_number,
    move_from_front,
    move_to_front,
    set_type,
    widen,
)


def bincount(self: GraphValue, weights: GraphValue = None, minlength: int = 0) -> GraphValue:
    places = widen(self)
    # With -1 in front there is always a largest element, and an empty tensor has length 0.
    length = op.Add(op.ReduceMax(op.Concat(make_ints([-1]), places, axis=0), [0], keepdims=1), [1])
    length = op.Max(length, make_ints([minlength]) if isinstance(minlength, int) else op.Reshape(minlength, [1]))
    if weights is None:
        added = op.Expand(op.Constant(value_int=1), op.Shape(places))
        none = op.Expand(op.Constant(value_int=0), length)
    else:
        added = cast(weights, weights.dtype if weights.dtype == KIND.FLOAT else KIND.DOUBLE)
        none = op.Expand(make_number(0, added), length)
    return op.ScatterElements(none, places, added, reduction="add")


def unique_consecutive(
    self: GraphValue, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[GraphValue, GraphValue, GraphValue]:
    """Return the first of each run of equal slices, each slice's run, and the runs' lengths. Without a dim, flatten."""
    rank = len(self.shape)
    along_dim = dim is not None and rank > 1
    axis = dim or 0
    front = move_to_front(self, axis) if along_dim else flatten(self)
    length = op.Shape(front, start=0, end=1)
    rows = op.Reshape(front, op.Concat(length, make_ints([-1]), axis=0)) if along_dim else op.Unsqueeze(front, [1])
    unlike = op.Not(op.Equal(op.Slice(rows, [1], [2**31], [0]), op.Slice(rows, [0], [-1], [0])))
    changes = op.ReduceMax(op.Cast(unlike, to=KIND.INT32), [1], keepdims=0)
    first = op.Concat(op.Constant(value=ir.tensor([1], dtype=KIND.INT32)), changes, axis=0)
    first = op.Cast(op.Slice(first, [0], length, [0]), to=KIND.BOOL)
    run = op.Sub(op.CumSum(op.Cast(first, to=KIND.INT64), op.Constant(value_int=0)), [1])
    starts = op.Compress(count_up(length), first, axis=0)
    counts = op.Sub(op.Concat(op.Slice(starts, [1], [2**31], [0]), length, axis=0), starts)
    kept = op.Compress(front, first, axis=0)
    if along_dim:
        return move_from_front(kept, axis, rank), run, counts
    return kept, op.Reshape(run, op.Shape(self)), counts


def histc(self: GraphValue, bins: int = 100, min: float = 0, max: float = 0) -> GraphValue:
    values = set_type(flatten(self), self)
    low, high = make_number(float(min), self), make_number(float(max), self)
    if min == max:
        low, high = (reduce(values, [0], keepdims=0) for reduce in (op.ReduceMin, op.ReduceMax))
        is_flat, unit = op.Equal(low, high), make_number(1.0, self)
        low, high = op.Where(is_flat, op.Sub(low, unit), low), op.Where(is_flat, op.Add(high, unit), high)
    inside = op.And(op.GreaterOrEqual(values, low), op.LessOrEqual(values, high))
    kept = op.Compress(values, inside, axis=0)
    place = op.Div(op.Mul(op.Sub(kept, low), make_number(float(bins), self)), op.Sub(high, low))
    place = op.Min(op.Cast(place, to=KIND.INT64), op.Constant(value_int=bins - 1))
    added = op.Expand(make_number(1.0, self), op.Shape(kept))
    return op.ScatterElements(op.Expand(make_number(0.0, self), make_ints([bins])), place, added, reduction="add")


def var(
    self: GraphValue, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> GraphValue:
    return var_mean(self, dim, correction, keepdim)[0]


def std(
    self: GraphValue, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> GraphValue:
    return _compute_spread(self, dim, correction, keepdim, root=True)[0]


def var_mean(
    self: GraphValue, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> tuple[GraphValue, GraphValue]:
    return _compute_spread(self, dim, correction, keepdim, root=False)


def std_mean(
    self: GraphValue, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> tuple[GraphValue, GraphValue]:
    return _compute_spread(self, dim, correction, keepdim, root=True)


def _compute_spread(
    self: GraphValue, dim: Sequence[int] | None, correction: float | None, keepdim: bool, root: bool
) -> tuple[GraphValue, GraphValue]:
    rank = len(self.shape)
    dims = list(range(rank)) if not dim else [d % rank for d in dim] if rank else []
    values = self if self.dtype == KIND.DOUBLE else cast(self, KIND.FLOAT)  # PyTorch also sums half precision in single
    if not dims:
        values, dims = set_type(op.Reshape(values, [1]), values), [0]
        keepdim = False
    mean = op.ReduceMean(values, dims, keepdims=1)
    apart = op.Sub(values, mean)
    squares = op.ReduceSum(op.Mul(apart, apart), dims, keepdims=1)
    count = op.ReduceProd(op.Gather(op.Shape(values), make_ints(dims)), [0], keepdims=0)
    left = op.Sub(op.Cast(count, to=values.dtype), make_number(float(1 if correction is None else correction), values))
    result = op.Div(squares, op.Max(left, make_number(0.0, values)))
    result = op.Sqrt(result) if root else result
    results = (value if keepdim else op.Squeeze(value, dims) for value in (result, mean))
    return tuple(value if values.dtype == self.dtype else op.Cast(value, to=self.dtype) for value in results)


TABLE: Table = {
    torch.ops.aten.bincount.default: bincount,
    torch.ops.aten.unique_consecutive.default: unique_consecutive,
    torch.ops.aten.histc.default: histc,
    torch.ops.aten.var.correction: var,
    torch.ops.aten.std.correction: std,
    torch.ops.aten.var_mean.correction: var_mean,
    torch.ops.aten.std_mean.correction: std_mean,
}
