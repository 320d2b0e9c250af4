"""Running products, extremes and log-sums along a dim, one ONNX Scan each.

A Scan takes one step per element, so memory grows with the input alone and the length stays open. torch has no
translation of cumprod, cummax and cummin. Its logcumsumexp takes the largest element of the row off first, so that
elements far below it come out as minus infinity, and a row of minus infinities as NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from onnxscript import graph, script
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    KIND,
    OWN,
    Table,
    best_of,
    cast,
    counted,
    from_front,
    is_float,
    is_none,
    like,
    narrowed,
    number,
    size,
    to_front,
    wide,
)


@script(OWN, op)
def _products(first: Any, rows: Any) -> Any:
    @graph()
    def step(so_far: Any, row: Any) -> Any:
        now = op.Mul(so_far, row)
        return now, op.Identity(now)

    _, result = op.Scan(first, rows, body=step, num_scan_inputs=1)
    return result


@script(OWN, op)
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


@script(OWN, op)
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


def cumprod(self: Any, dim: int, dtype: int = -1) -> Any:
    self = wide(self) if is_none(dtype) else cast(self, KIND(dtype))
    return _along(_products, self, dim, 1)


def logcumsumexp(self: Any, dim: int) -> Any:
    return _along(_log_sums, self, dim, -math.inf)


def _along(run: Callable[..., Any], self: Any, dim: int, first: float) -> Any:
    if not self.shape:
        return op.Identity(self)
    rows, start = _padded(self, dim, first)
    return from_front(op.Slice(run(start, rows), [0], [-1], [0]), dim, len(self.shape))


def cummax(self: Any, dim: int) -> tuple[Any, Any]:
    if not self.shape:
        return op.Identity(self), op.Constant(value_int=0)
    rank = len(self.shape)
    values = wide(self)
    rows, start = _padded(values, dim, best_of(values, largest=False))
    counts = counted(op.Add(size(self, dim), [1]))
    nowhere = op.Expand(op.Constant(value_int=0), op.Shape(start))
    results = (op.Slice(one, [0], [-1], [0]) for one in _largest(start, nowhere, rows, counts))
    found, places = (from_front(one, dim, rank) for one in results)
    return narrowed(found, self), places


def cummin(self: Any, dim: int) -> tuple[Any, Any]:
    found, places = cummax(like(_mirrored(wide(self), self), wide(self)), dim)
    return narrowed(_mirrored(found, self), self), places


def _mirrored(value: Any, of: Any) -> Any:
    """In the opposite order; of whole numbers the lowest has no negative, but every one has -1 minus itself."""
    return op.Neg(value) if is_float(of) else op.Sub(op.Constant(value_int=-1), value)


def _padded(value: Any, dim: int, first: float) -> tuple[Any, Any]:
    """The dim in front and one row longer, and the first state: the runtime's Scan refuses an empty sequence."""
    rows = to_front(value, dim)
    start = op.Expand(number(first, value), op.Shape(rows, start=1))
    return op.Concat(rows, op.Unsqueeze(start, [0]), axis=0), start


TABLE: Table = {
    torch.ops.aten.cumprod.default: cumprod,
    torch.ops.aten.cummax.default: cummax,
    torch.ops.aten.cummin.default: cummin,
    torch.ops.aten.logcumsumexp.default: logcumsumexp,
}
