"""How many, and how far spread: bincount, runs of equal elements, histc, variance.

torch's bincount takes no weights and no symbolic length, and its histc no range found in the data. Its variance
divides by a negative number where fewer elements than the correction are left, where PyTorch divides by zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import KIND, Table, cast, counted, flat, ints, number, typed, wide


def bincount(self: Any, weights: Any = None, minlength: int = 0) -> Any:
    places = wide(self)
    # With -1 in front there is always a largest, and nothing counts as up to 0.
    length = op.Add(op.ReduceMax(op.Concat(ints([-1]), places, axis=0), [0], keepdims=1), [1])
    length = op.Max(length, ints([minlength]) if isinstance(minlength, int) else op.Reshape(minlength, [1]))
    if weights is None:
        added = op.Expand(op.Constant(value_int=1), op.Shape(places))
        none = op.Expand(op.Constant(value_int=0), length)
    else:
        added = cast(weights, weights.dtype if weights.dtype == KIND.FLOAT else KIND.DOUBLE)
        none = op.Expand(number(0, added), length)
    return op.ScatterElements(none, places, added, reduction="add")


def unique_consecutive(self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int = -1) -> Any:
    """Of a tensor with one dim: the first of each run of equal elements, each element's run, and the runs' lengths."""
    length = op.Shape(self)
    changes = op.Not(op.Equal(op.Slice(self, [1], [2**31], [0]), op.Slice(self, [0], [-1], [0])))
    first = op.Slice(op.Concat(op.Cast(ints([1]), to=KIND.BOOL), changes, axis=0), [0], length, [0])
    run = op.Sub(op.CumSum(op.Cast(first, to=KIND.INT64), op.Constant(value_int=0)), [1])
    starts = op.Compress(counted(length), first, axis=0)
    counts = op.Sub(op.Concat(op.Slice(starts, [1], [2**31], [0]), length, axis=0), starts)
    return op.Compress(self, first, axis=0), run, counts


def histc(self: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    values = typed(flat(self), self)
    low, high = number(float(min), self), number(float(max), self)
    if min == max:
        low, high = (reduce(values, [0], keepdims=0) for reduce in (op.ReduceMin, op.ReduceMax))
        flat_data, one = op.Equal(low, high), number(1.0, self)
        low, high = op.Where(flat_data, op.Sub(low, one), low), op.Where(flat_data, op.Add(high, one), high)
    inside = op.And(op.GreaterOrEqual(values, low), op.LessOrEqual(values, high))
    kept = op.Compress(values, inside, axis=0)
    place = op.Div(op.Mul(op.Sub(kept, low), number(float(bins), self)), op.Sub(high, low))
    place = op.Min(op.Cast(place, to=KIND.INT64), op.Constant(value_int=bins - 1))
    added = op.Expand(number(1.0, self), op.Shape(kept))
    return op.ScatterElements(op.Expand(number(0.0, self), ints([bins])), place, added, reduction="add")


def var(self: Any, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False) -> Any:
    return var_mean(self, dim, correction, keepdim)[0]


def std(self: Any, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False) -> Any:
    return _spread(self, dim, correction, keepdim, root=True)[0]


def var_mean(
    self: Any, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Any, Any]:
    return _spread(self, dim, correction, keepdim, root=False)


def std_mean(
    self: Any, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Any, Any]:
    return _spread(self, dim, correction, keepdim, root=True)


def _spread(
    self: Any, dim: Sequence[int] | None, correction: float | None, keepdim: bool, root: bool
) -> tuple[Any, Any]:
    rank = len(self.shape)
    dims = list(range(rank)) if not dim else [d % rank for d in dim] if rank else []
    values = self if self.dtype == KIND.DOUBLE else cast(self, KIND.FLOAT)  # PyTorch adds up half in single too
    if not dims:
        values, dims = typed(op.Reshape(values, [1]), values), [0]
        keepdim = False
    mean = op.ReduceMean(values, dims, keepdims=1)
    apart = op.Sub(values, mean)
    squares = op.ReduceSum(op.Mul(apart, apart), dims, keepdims=1)
    count = op.ReduceProd(op.Gather(op.Shape(values), ints(dims)), [0], keepdims=0)
    left = op.Sub(op.Cast(count, to=values.dtype), number(float(1 if correction is None else correction), values))
    result = op.Div(squares, op.Max(left, number(0.0, values)))
    result = op.Sqrt(result) if root else result
    spread, centre = (one if keepdim else op.Squeeze(one, dims) for one in (result, mean))
    return tuple(one if values.dtype == self.dtype else op.Cast(one, to=self.dtype) for one in (spread, centre))


TABLE: Table = {
    torch.ops.aten.bincount.default: bincount,
    torch.ops.aten.unique_consecutive.default: unique_consecutive,
    torch.ops.aten.histc.default: histc,
    torch.ops.aten.var.correction: var,
    torch.ops.aten.std.correction: std,
    torch.ops.aten.var_mean.correction: var_mean,
    torch.ops.aten.std_mean.correction: std_mean,
}
