"""Scattering with a reduction, and index_reduce, which does the same with entire slices.

torch has no translation of index_reduce and of scatter with `reduce=`. Its scatter_reduce writes a mean as a plain
overwrite, without a warning. Here a mean is the sum divided by the number of values for each position.

If the old values do not count, the positions that are written start from the reduction's neutral number.
"""

from __future__ import annotations

import onnx_ir as ir
import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    KIND,
    GraphValue,
    Table,
    get_extreme,
    is_float,
    make_ints,
    make_number,
    narrow,
    set_like,
    set_type,
    widen,
)

ONNX_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


def scatter_reduce(
    self: GraphValue, dim: int, index: GraphValue, src: GraphValue, reduce: str, include_self: bool = True
) -> GraphValue:
    scalar = not self.shape
    if scalar:
        self, index, src = (_as_row(value) for value in (self, index, src))
    result = _scatter(self, dim, index, src, reduce, include_self)
    return op.Squeeze(result, [0]) if scalar else result


def scatter_with(self: GraphValue, dim: int, index: GraphValue, src: GraphValue, reduce: str) -> GraphValue:
    return scatter_reduce(self, dim, index, src, reduce)


def scatter_add(self: GraphValue, dim: int, index: GraphValue, src: GraphValue) -> GraphValue:
    return scatter_reduce(self, dim, index, src, "sum")


def scatter_value_with(self: GraphValue, dim: int, index: GraphValue, value: float, reduce: str) -> GraphValue:
    src = set_like(op.Expand(op.CastLike(make_number(value, KIND.FLOAT), self), op.Shape(index)), index, self.dtype)
    return scatter_reduce(self, dim, index, src, reduce)


def index_reduce(
    self: GraphValue, dim: int, index: GraphValue, source: GraphValue, reduce: str, include_self: bool = True
) -> GraphValue:
    if not self.shape:
        return scatter_reduce(self, 0, index, source, reduce, include_self)
    rank = len(self.shape)
    column = op.Reshape(index, [-1 if axis == dim % rank else 1 for axis in range(rank)])
    return _scatter(self, dim, op.Expand(column, op.Shape(source)), source, reduce, include_self)


def _scatter(
    self: GraphValue, dim: int, index: GraphValue, src: GraphValue, reduce: str, include_self: bool
) -> GraphValue:
    start, added = widen(self), widen(src)
    if not include_self:
        neutral = op.Expand(make_number(_get_neutral(start, reduce), start), op.Shape(src))
        start = op.ScatterElements(start, index, neutral, axis=dim)
    total = op.ScatterElements(start, index, added, axis=dim, reduction=ONNX_REDUCTIONS[reduce])
    if reduce == "mean":
        ones = op.Expand(op.Constant(value_int=1), op.Shape(src))
        none = op.Expand(op.Constant(value_int=1 if include_self else 0), op.Shape(self))
        hits = op.ScatterElements(none, index, ones, axis=dim, reduction="add")
        total = _divide(total, op.Max(hits, make_ints([1])), self)
    return narrow(total, self)


def _divide(total: GraphValue, count: GraphValue, of: GraphValue) -> GraphValue:
    if is_float(of):
        return op.Div(total, op.Cast(count, to=of.dtype))
    # PyTorch rounds a mean of integers down, ONNX's Div towards zero.
    left = op.Mod(total, count)
    return op.Div(op.Sub(total, left), count)


def _get_neutral(values: GraphValue, reduce: str) -> float:
    if reduce in ("prod", "multiply"):
        return 1
    return get_extreme(values, largest=reduce == "amin") if reduce in ("amax", "amin") else 0


def _as_row(value: GraphValue) -> GraphValue:
    row = set_type(op.Reshape(value, [1]), value)
    row.shape = ir.Shape([1])
    return row


TABLE: Table = {
    torch.ops.aten.scatter_reduce.two: scatter_reduce,
    torch.ops.aten.scatter_add.default: scatter_add,
    torch.ops.aten.scatter.reduce: scatter_with,
    torch.ops.aten.scatter.value_reduce: scatter_value_with,
    torch.ops.aten.index_reduce.default: index_reduce,
}
