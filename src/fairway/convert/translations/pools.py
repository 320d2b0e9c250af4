"""Adaptive pooling with open input sizes, one slice per output cell and dim.

Cell i of n takes the inputs from ⌊i·size/n⌋ to ⌈(i+1)·size/n⌉. torch computes these places from the example's size: its
average pools are right at that size alone, and it has no maximum pool. A cell's mean is the mean of its rows' means,
and its largest the largest of its rows' largest, so the dims are pooled one after the other.

Where the number of cells varies too, every cell averages the whole row through a mask. The largest has no such form:
torch's operator takes plain numbers there, and torch.export fixes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import Table, counted, from_back, ints, number, size, to_back, typed


def average(self: Any, output_size: Sequence[Any]) -> Any:
    result = self
    for back, count in enumerate(reversed(_cells(output_size)), 1):
        if isinstance(count, int):
            spans = _spans(size(self, -back), count)
            parts = [op.ReduceMean(op.Slice(result, *span, [-back]), [-back], keepdims=1) for span in spans]
            result = _joined(parts, len(self.shape) - back)
        else:
            row, mask = _masked(self, result, back, count)
            total = op.ReduceSum(op.Where(mask, row, number(0.0, self)), [-1], keepdims=0)
            cells = op.ReduceSum(op.CastLike(mask, self), [-1], keepdims=0)
            result = from_back(op.Div(total, cells), -back, len(self.shape))
    return result


def largest(self: Any, output_size: Sequence[Any]) -> tuple[Any, Any]:
    """The values, and each one's place among the cells' dims laid out in a row. Of equal ones the first."""
    result, place = self, None
    stride = ints([1])
    for back, count in enumerate(reversed(_cells(output_size)), 1):
        result, where, place = _largest_of_spans(self, result, place, back, count)
        step = op.Mul(where, stride)
        place = step if place is None else op.Add(step, place)
        stride = op.Mul(stride, size(self, -back))
    return result, place


def _largest_of_spans(self: Any, result: Any, place: Any, back: int, count: int) -> tuple[Any, Any, Any]:
    """The largest of each cell, where it stands in this dim, and its places in the dims before."""
    values, wheres, places = [], [], []
    for start, end in _spans(size(self, -back), count):
        part = op.Slice(result, start, end, [-back])
        where = op.ArgMax(part, axis=-back, keepdims=1)
        values.append(op.GatherElements(part, where, axis=-back))
        wheres.append(op.Add(where, start))
        if place is not None:
            places.append(op.GatherElements(op.Slice(place, start, end, [-back]), where, axis=-back))
    axis = len(self.shape) - back
    return _joined(values, axis), _joined(wheres, axis), _joined(places, axis) if places else None


def _masked(self: Any, result: Any, back: int, count: Any) -> tuple[Any, Any]:
    """The dim at the back, with one before it for the cells; and which elements each cell takes."""
    length, cells = size(self, -back), op.Reshape(count, [1])
    cell = op.Unsqueeze(counted(cells), [1])
    starts = op.Div(op.Mul(cell, length), cells)
    ends = op.Div(op.Add(op.Mul(op.Add(cell, [1]), length), op.Sub(cells, [1])), cells)
    here = counted(length)
    shaped = typed(result, self)
    shaped.shape = self.shape
    row = op.Unsqueeze(to_back(shaped, -back), [-2])
    return row, op.And(op.GreaterOrEqual(here, starts), op.Less(here, ends))


def _cells(output_size: Any) -> list[Any]:
    return list(output_size) if isinstance(output_size, Sequence) else [output_size]


def _spans(length: Any, count: int) -> list[tuple[Any, Any]]:
    """Where each cell starts and ends. ONNX's Div of whole numbers rounds down, as none is negative."""
    return [
        (op.Div(op.Mul(length, [i]), [count]), op.Div(op.Add(op.Mul(length, [i + 1]), [count - 1]), [count]))
        for i in range(count)
    ]


def _joined(parts: list[Any], axis: int) -> Any:
    return op.Concat(*parts, axis=axis) if len(parts) > 1 else parts[0]


TABLE: Table = {
    torch.ops.aten.adaptive_avg_pool1d.default: average,
    torch.ops.aten.adaptive_avg_pool2d.default: average,
    torch.ops.aten._adaptive_avg_pool2d.default: average,
    torch.ops.aten.adaptive_avg_pool3d.default: average,
    torch.ops.aten._adaptive_avg_pool3d.default: average,
    torch.ops.aten.adaptive_max_pool1d.default: largest,
    torch.ops.aten.adaptive_max_pool2d.default: largest,
    torch.ops.aten.adaptive_max_pool3d.default: largest,
}
