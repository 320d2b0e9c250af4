"""Stable sorting, positions in a sorted row, and the median, the k-th and the most frequent element of a row.

torch has none of these, and sorts only without a fixed order of equal elements. A position in a sorted row is the
number of boundaries before the value. Counting them costs one comparison for each boundary and value, and both numbers
stay dynamic.

PyTorch does not define the index of equal elements except in stable sorting, and it differs here. A NaN in a row with
infinities is sorted among them and not after them.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    KIND,
    GraphValue,
    Table,
    cast,
    flatten,
    get_extreme,
    get_size,
    is_float,
    make_ints,
    make_number,
    move_from_back,
    move_to_back,
    narrow,
    set_like,
    set_type,
    widen,
)


def searchsorted(
    sorted_sequence: GraphValue,
    self: GraphValue,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: GraphValue = None,
) -> GraphValue:
    if sorter is not None:
        sorted_sequence = set_like(op.GatherElements(sorted_sequence, sorter, axis=-1), sorted_sequence)
    boundaries, values = (widen(value) for value in (sorted_sequence, self))
    row = set_type(op.Unsqueeze(boundaries, [-2]), boundaries) if len(sorted_sequence.shape) > 1 else boundaries
    return _count_before(row, values, right or side == "right", out_int32)


def searchsorted_scalar(
    sorted_sequence: GraphValue,
    self: float,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: GraphValue = None,
) -> GraphValue:
    return searchsorted(sorted_sequence, _make_scalar(self, sorted_sequence), out_int32, right, side, sorter)


def bucketize(self: GraphValue, boundaries: GraphValue, out_int32: bool = False, right: bool = False) -> GraphValue:
    return _count_before(widen(boundaries), widen(self), right, out_int32)


def bucketize_scalar(self: float, boundaries: GraphValue, out_int32: bool = False, right: bool = False) -> GraphValue:
    return bucketize(_make_scalar(self, boundaries), boundaries, out_int32, right)


def _make_scalar(value: float, other: GraphValue) -> GraphValue:
    kind = other.dtype if is_float(other) or isinstance(value, int) else KIND.FLOAT
    return set_type(make_number(value, kind), kind)


def _count_before(row: GraphValue, values: GraphValue, right: bool, short: bool) -> GraphValue:
    """Count the boundaries of the last dim that are not past the value. A NaN is past everything."""
    if is_float(row) != is_float(values):
        row, values = cast(row, KIND.FLOAT), cast(values, KIND.FLOAT)
    past = (op.Greater if right else op.GreaterOrEqual)(row, op.Unsqueeze(values, [-1]))
    count = op.ReduceSum(op.Cast(op.Not(past), to=KIND.INT64), [-1], keepdims=0)
    return op.Cast(count, to=KIND.INT32) if short else count


def sort_stable(
    self: GraphValue, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[GraphValue, GraphValue]:
    """Sort by ONNX's TopK, which puts the first of equal elements first in both directions."""
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    _, places = op.TopK(_replace_nan(self), get_size(self, dim), axis=dim, largest=int(descending))
    return op.GatherElements(self, places, axis=dim), places


def kthvalue(self: GraphValue, k: int, dim: int = -1, keepdim: bool = False) -> tuple[GraphValue, GraphValue]:
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    count = make_ints([k]) if isinstance(k, int) else op.Reshape(k, [1])
    _, places = op.TopK(_replace_nan(self), count, axis=dim, largest=0)
    return _take(self, op.Slice(places, [-1], [2**31], [dim]), dim, keepdim)


def median_dim(self: GraphValue, dim: int, keepdim: bool = False) -> tuple[GraphValue, GraphValue]:
    """Return the lower median, or the first NaN of a row that has one."""
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    half = op.Add(op.Div(op.Sub(get_size(self, dim), [1]), [2]), [1])
    _, places = op.TopK(_replace_nan(self), half, axis=dim, largest=0)
    place = op.Slice(places, [-1], [2**31], [dim])
    if is_float(self):
        unknown = op.Cast(op.IsNaN(self), to=KIND.INT64)
        first = op.ArgMax(unknown, axis=dim, keepdims=1)
        place = op.Where(op.Cast(op.ReduceMax(unknown, [dim], keepdims=1), to=KIND.BOOL), first, place)
    return _take(self, place, dim, keepdim)


def nanmedian_dim(self: GraphValue, dim: int, keepdim: bool = False) -> tuple[GraphValue, GraphValue]:
    """Return the lower median of the elements that are not NaN, and NaN if there are none."""
    if not is_float(self) or not self.shape:
        return median_dim(self, dim, keepdim)
    known = _replace_nan(self)
    _, places = op.TopK(known, get_size(self, dim), axis=dim, largest=0)
    count = op.ReduceSum(op.Cast(op.Not(op.IsNaN(self)), to=KIND.INT64), [dim], keepdims=1)
    half = op.Div(op.Max(op.Sub(count, [1]), make_ints([0])), [2])
    place = op.GatherElements(places, half, axis=dim)
    nothing = op.Equal(count, [0])
    middle = op.Where(nothing, make_number(math.nan, self), op.GatherElements(known, place, axis=dim))
    return _squeeze_dim(middle, dim, keepdim), _squeeze_dim(place, dim, keepdim)


def median(self: GraphValue) -> GraphValue:
    return op.Identity(self) if not self.shape else median_dim(_flatten_to_row(self), 0)[0]


def nanmedian(self: GraphValue) -> GraphValue:
    return op.Identity(self) if not self.shape else nanmedian_dim(_flatten_to_row(self), 0)[0]


def mode(self: GraphValue, dim: int = -1, keepdim: bool = False) -> tuple[GraphValue, GraphValue]:
    """Return the smallest of the most frequent elements. Each element is compared with all others of its row."""
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    rows = widen(self)
    last = move_to_back(rows, dim)
    same = op.Equal(op.Unsqueeze(last, [-1]), op.Unsqueeze(last, [-2]))
    counts = op.ReduceSum(op.Cast(same, to=KIND.INT64), [-1], keepdims=0)
    most = op.Equal(counts, op.ReduceMax(counts, [-1], keepdims=1))
    value = op.ReduceMin(op.Where(most, last, make_number(get_extreme(rows, largest=True), rows)), [-1], keepdims=1)
    here = op.Cast(op.Equal(last, value), to=KIND.INT64)
    place = op.ArgMax(here, axis=-1, keepdims=1, select_last_index=1)
    rank = len(self.shape)
    value, place = (_squeeze_dim(move_from_back(result, dim, rank), dim, keepdim) for result in (value, place))
    return narrow(value, self), place


def _replace_nan(self: GraphValue) -> GraphValue:
    """Replace NaN by infinity for sorting: it is the largest in PyTorch, and the runtime's TopK has no order for it."""
    if not is_float(self):
        return widen(self)
    return op.Where(op.IsNaN(self), make_number(math.inf, self), self)


def _take(self: GraphValue, place: GraphValue, dim: int, keepdim: bool) -> tuple[GraphValue, GraphValue]:
    value = op.GatherElements(self, place, axis=dim)
    return _squeeze_dim(value, dim, keepdim), _squeeze_dim(place, dim, keepdim)


def _squeeze_dim(value: GraphValue, dim: int, keepdim: bool) -> GraphValue:
    return value if keepdim else op.Squeeze(value, [dim])


def _flatten_to_row(self: GraphValue) -> GraphValue:
    row = set_type(flatten(self), self)
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
