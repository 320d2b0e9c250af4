"""Rows sorted, places in a sorted row, and the middle, the k-th and the most frequent of a row.

torch has none of these, and of sorting only the kind that leaves the order of equal elements open. A place is counted,
not searched for: as many boundaries as lie before the value. That costs one comparison for each boundary and value, and
leaves the number of both open.

Which of equal elements an index names is left open by PyTorch except in stable sorting, and differs here. A NaN in a
row with infinities is sorted among them rather than beyond.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    KIND,
    Table,
    best_of,
    cast,
    flat,
    from_back,
    ints,
    is_float,
    like,
    narrowed,
    number,
    size,
    to_back,
    typed,
    wide,
)


def searchsorted(
    sorted_sequence: Any,
    self: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    if sorter is not None:
        sorted_sequence = like(op.GatherElements(sorted_sequence, sorter, axis=-1), sorted_sequence)
    boundaries, values = (wide(one) for one in (sorted_sequence, self))
    row = typed(op.Unsqueeze(boundaries, [-2]), boundaries) if len(sorted_sequence.shape) > 1 else boundaries
    return _counted(row, values, right or side == "right", out_int32)


def searchsorted_scalar(
    sorted_sequence: Any,
    self: float,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    return searchsorted(sorted_sequence, _scalar(self, sorted_sequence), out_int32, right, side, sorter)


def bucketize(self: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    return _counted(wide(boundaries), wide(self), right, out_int32)


def bucketize_scalar(self: float, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    return bucketize(_scalar(self, boundaries), boundaries, out_int32, right)


def _scalar(value: float, other: Any) -> Any:
    kind = other.dtype if is_float(other) or isinstance(value, int) else KIND.FLOAT
    return typed(number(value, kind), kind)


def _counted(row: Any, values: Any, right: bool, short: bool) -> Any:
    """How many boundaries of the last dim are not past the value: a NaN is past everything."""
    if is_float(row) != is_float(values):
        row, values = cast(row, KIND.FLOAT), cast(values, KIND.FLOAT)
    past = (op.Greater if right else op.GreaterOrEqual)(row, op.Unsqueeze(values, [-1]))
    count = op.ReduceSum(op.Cast(op.Not(past), to=KIND.INT64), [-1], keepdims=0)
    return op.Cast(count, to=KIND.INT32) if short else count


def sort_stable(self: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Any, Any]:
    """ONNX's TopK puts the first of equal elements first, whichever way it sorts."""
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    _, places = op.TopK(_known(self), size(self, dim), axis=dim, largest=int(descending))
    return op.GatherElements(self, places, axis=dim), places


def kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    wanted = ints([k]) if isinstance(k, int) else op.Reshape(k, [1])
    _, places = op.TopK(_known(self), wanted, axis=dim, largest=0)
    return _taken(self, op.Slice(places, [-1], [2**31], [dim]), dim, keepdim)


def median_dim(self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The lower middle; of a row with NaN, its first NaN."""
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    half = op.Add(op.Div(op.Sub(size(self, dim), [1]), [2]), [1])
    _, places = op.TopK(_known(self), half, axis=dim, largest=0)
    place = op.Slice(places, [-1], [2**31], [dim])
    if is_float(self):
        unknown = op.Cast(op.IsNaN(self), to=KIND.INT64)
        first = op.ArgMax(unknown, axis=dim, keepdims=1)
        place = op.Where(op.Cast(op.ReduceMax(unknown, [dim], keepdims=1), to=KIND.BOOL), first, place)
    return _taken(self, place, dim, keepdim)


def nanmedian_dim(self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The lower middle of what is a number; NaN where nothing is."""
    if not is_float(self) or not self.shape:
        return median_dim(self, dim, keepdim)
    known = _known(self)
    _, places = op.TopK(known, size(self, dim), axis=dim, largest=0)
    count = op.ReduceSum(op.Cast(op.Not(op.IsNaN(self)), to=KIND.INT64), [dim], keepdims=1)
    half = op.Div(op.Max(op.Sub(count, [1]), ints([0])), [2])
    place = op.GatherElements(places, half, axis=dim)
    nothing = op.Equal(count, [0])
    middle = op.Where(nothing, number(math.nan, self), op.GatherElements(known, place, axis=dim))
    return _squeezed(middle, dim, keepdim), _squeezed(place, dim, keepdim)


def median(self: Any) -> Any:
    return op.Identity(self) if not self.shape else median_dim(_row(self), 0)[0]


def nanmedian(self: Any) -> Any:
    return op.Identity(self) if not self.shape else nanmedian_dim(_row(self), 0)[0]


def mode(self: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """The smallest of the most frequent. Every element is compared with every other of its row."""
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    rows = wide(self)
    last = to_back(rows, dim)
    same = op.Equal(op.Unsqueeze(last, [-1]), op.Unsqueeze(last, [-2]))
    counts = op.ReduceSum(op.Cast(same, to=KIND.INT64), [-1], keepdims=0)
    most = op.Equal(counts, op.ReduceMax(counts, [-1], keepdims=1))
    value = op.ReduceMin(op.Where(most, last, number(best_of(rows, largest=True), rows)), [-1], keepdims=1)
    here = op.Cast(op.Equal(last, value), to=KIND.INT64)
    place = op.ArgMax(here, axis=-1, keepdims=1, select_last_index=1)
    rank = len(self.shape)
    value, place = (_squeezed(from_back(one, dim, rank), dim, keepdim) for one in (value, place))
    return narrowed(value, self), place


def _known(self: Any) -> Any:
    """The tensor for sorting: NaN counts as largest, as in PyTorch, where the runtime's TopK has no order for it."""
    if not is_float(self):
        return wide(self)
    return op.Where(op.IsNaN(self), number(math.inf, self), self)


def _taken(self: Any, place: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    value = op.GatherElements(self, place, axis=dim)
    return _squeezed(value, dim, keepdim), _squeezed(place, dim, keepdim)


def _squeezed(value: Any, dim: int, keepdim: bool) -> Any:
    return value if keepdim else op.Squeeze(value, [dim])


def _row(self: Any) -> Any:
    row = typed(flat(self), self)
    row.shape = ir.Shape([None])
    return row


TABLE: Table = {
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.searchsorted.Scalar: searchsorted_scalar,
    torch.ops.aten.bucketize.Tensor: bucketize,
    torch.ops.aten.bucketize.Scalar: bucketize_scalar,
    torch.ops.aten.sort.stable: sort_stable,
    torch.ops.aten.kthvalue.default: kthvalue,
    torch.ops.aten.median.default: median,
    torch.ops.aten.median.dim: median_dim,
    torch.ops.aten.nanmedian.default: nanmedian,
    torch.ops.aten.nanmedian.dim: nanmedian_dim,
    torch.ops.aten.mode.default: mode,
}
