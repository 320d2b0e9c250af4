"""Scattering with a reduction, and index_reduce, which is the same along whole slices.

torch has no translation of index_reduce and of scatter with `reduce=`. Its scatter_reduce writes a mean as a plain
overwrite, without a word. A mean is the sum over a count of what fell on each place.

Where the old values do not count, the places that are hit start from the reduction's neutral number.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    KIND,
    Table,
    best_of,
    ints,
    is_float,
    like,
    narrowed,
    number,
    typed,
    wide,
)

WORDS = {"sum": "add", "add": "add", "mean": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    scalar = not self.shape
    if scalar:
        self, index, src = (_as_row(one) for one in (self, index, src))
    result = _scattered(self, dim, index, src, reduce, include_self)
    return op.Squeeze(result, [0]) if scalar else result


def scatter_with(self: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    return scatter_reduce(self, dim, index, src, reduce)


def scatter_value_with(self: Any, dim: int, index: Any, value: float, reduce: str) -> Any:
    src = like(op.Expand(op.CastLike(number(value, KIND.FLOAT), self), op.Shape(index)), index, self.dtype)
    return scatter_reduce(self, dim, index, src, reduce)


def index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    rank = len(self.shape)
    column = op.Reshape(index, [-1 if axis == dim % rank else 1 for axis in range(rank)])
    return _scattered(self, dim, op.Expand(column, op.Shape(source)), source, reduce, include_self)


def _scattered(self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    start, added = wide(self), wide(src)
    if not include_self:
        neutral = op.Expand(number(_neutral(start, reduce), start), op.Shape(src))
        start = op.ScatterElements(start, index, neutral, axis=dim)
    total = op.ScatterElements(start, index, added, axis=dim, reduction=WORDS[reduce])
    if reduce == "mean":
        ones = op.Expand(op.Constant(value_int=1), op.Shape(src))
        none = op.Expand(op.Constant(value_int=1 if include_self else 0), op.Shape(self))
        hits = op.ScatterElements(none, index, ones, axis=dim, reduction="add")
        total = _divided(total, op.Max(hits, ints([1])), self)
    return narrowed(total, self)


def _divided(total: Any, count: Any, of: Any) -> Any:
    if is_float(of):
        return op.Div(total, op.Cast(count, to=of.dtype))
    # PyTorch rounds a mean of whole numbers down, ONNX's Div towards zero.
    left = op.Mod(total, count)
    return op.Div(op.Sub(total, left), count)


def _neutral(values: Any, reduce: str) -> float:
    if reduce in ("prod", "multiply"):
        return 1
    return best_of(values, largest=reduce == "amin") if reduce in ("amax", "amin") else 0


def _as_row(value: Any) -> Any:
    row = typed(op.Reshape(value, [1]), value)
    row.shape = ir.Shape([1])
    return row


TABLE: Table = {
    torch.ops.aten.scatter_reduce.two: scatter_reduce,
    torch.ops.aten.scatter.reduce: scatter_with,
    torch.ops.aten.scatter.value_reduce: scatter_value_with,
    torch.ops.aten.index_reduce.default: index_reduce,
}
