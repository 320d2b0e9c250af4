"""Cumulative sums, and cumulative products, extremes and log-sums along a dim, one ONNX Scan each.

PyTorch adds a cumulative sum up in float64 and rounds each result once. So does the translation.


A Scan takes one step per element, so memory grows linearly with the input and the length stays dynamic. torch has no
translation of cumprod, cummax and cummin. Its logcumsumexp first subtracts the largest element of the row, so that
elements far below it become minus infinity, and a row of minus infinities becomes NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from onnxscript import graph, script
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    FAIRWAY_OPSET,
    KIND,
    GraphValue,
    Table,
    cast,
    count_up,
    get_extreme,
    get_size,
    is_float,
    is_none,
    make_number,
    move_from_front,
    move_to_front,
    narrow,
    set_like,
    widen,
)


@script(FAIRWAY_OPSET, op)
def _products(first: Any, rows: Any) -> Any:
    @graph()
    def step(so_far: Any, row: Any) -> Any:
        now = op.Mul(so_far, row)
        return now, op.Identity(now)

    _, result = op.Scan(first, rows, body=step, num_scan_inputs=1)
    return result


@script(FAIRWAY_OPSET, op)
def _log_sums(first: Any, rows: Any) -> Any:
    @graph()
    def step(so_far: Any, row: Any) -> Any:
        one = op.CastLike(op.Constant(value_float=1.0), so_far)
        tail = op.Log(op.Add(op.Exp(op.Neg(op.Abs(op.Sub(so_far, row)))), one))
        doubled = op.Add(so_far, op.Log(op.Add(one, one)))
        # Equal ones apart: two infinities have no difference.
        now = op.Where(op.Equal(so_far, row), doubled, op.Add(op.Max(so_far, row), tail))
        return now, op.Identity(now)

    _, result = op.Scan(first, rows, body=step, num_scan_inputs=1)
    return result


@script(FAIRWAY_OPSET, op)
def _largest(first: Any, start: Any, rows: Any, counts: Any) -> tuple[Any, Any]:
    @graph()
    def step(best: Any, place: Any, row: Any, count: Any) -> Any:
        # What does not equal itself is NaN, and stays; whole numbers have no IsNaN.
        better = op.And(op.Equal(best, best), op.GreaterOrEqual(row, best))
        takes = op.Or(better, op.Not(op.Equal(row, row)))
        now = op.Where(takes, row, best)
        there = op.Where(takes, count, place)
        return now, there, op.Identity(now), op.Identity(there)

    _, _, values, places = op.Scan(first, start, rows, counts, body=step, num_scan_inputs=2)
    return values, places


def cumsum(self: GraphValue, dim: int, dtype: int = -1) -> GraphValue:
    kind = self.dtype if is_none(dtype) else KIND(dtype)
    if not self.shape:
        return cast(self, kind) if self.dtype != kind else op.Identity(self)
    rounded = cast(self, kind)  # the dtype is applied to the terms first
    return set_like(op.Cast(op.CumSum(cast(rounded, KIND.DOUBLE), op.Constant(value_int=dim)), to=kind), self, kind)


def cumprod(self: GraphValue, dim: int, dtype: int = -1) -> GraphValue:
    self = widen(self) if is_none(dtype) else cast(self, KIND(dtype))
    return _scan_along(_products, self, dim, 1)


def logcumsumexp(self: GraphValue, dim: int) -> GraphValue:
    return _scan_along(_log_sums, self, dim, -math.inf)


def _scan_along(run: Callable[..., GraphValue], self: GraphValue, dim: int, first: float) -> GraphValue:
    if not self.shape:
        return op.Identity(self)
    rows, start = _pad_front(self, dim, first)
    return move_from_front(op.Slice(run(start, rows), [0], [-1], [0]), dim, len(self.shape))


def cummax(self: GraphValue, dim: int) -> tuple[GraphValue, GraphValue]:
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    rank = len(self.shape)
    values = widen(self)
    rows, start = _pad_front(values, dim, get_extreme(values, largest=False))
    counts = count_up(op.Add(get_size(self, dim), [1]))
    nowhere = op.Expand(op.Constant(value_int=0), op.Shape(start))
    results = (op.Slice(result, [0], [-1], [0]) for result in _largest(start, nowhere, rows, counts))
    maxima, places = (move_from_front(result, dim, rank) for result in results)
    return narrow(maxima, self), places


def cummin(self: GraphValue, dim: int) -> tuple[GraphValue, GraphValue]:
    maxima, places = cummax(set_like(_mirror(widen(self), self), widen(self)), dim)
    return narrow(_mirror(maxima, self), self), places


def _mirror(value: GraphValue, of: GraphValue) -> GraphValue:
    """Reverse the order of the values. The lowest integer has no negative, so integers become -1 minus themselves."""
    return op.Neg(value) if is_float(of) else op.Sub(op.Constant(value_int=-1), value)


def _pad_front(value: GraphValue, dim: int, first: float) -> tuple[GraphValue, GraphValue]:
    """Return the dim in front and one row longer, since the runtime's Scan refuses empty sequences, and that row."""
    rows = move_to_front(value, dim)
    start = op.Expand(make_number(first, value), op.Shape(rows, start=1))
    return op.Concat(rows, op.Unsqueeze(start, [0]), axis=0), start


TABLE: Table = {
    torch.ops.aten.cumsum.default: cumsum,
    torch.ops.aten.cumprod.default: cumprod,
    torch.ops.aten.cummax.default: cummax,
    torch.ops.aten.cummin.default: cummin,
    torch.ops.aten.logcumsumexp.default: logcumsumexp,
}
