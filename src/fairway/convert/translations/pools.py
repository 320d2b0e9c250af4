"""Adaptive pooling with dynamic input sizes, one slice per output cell and dim.

Cell i of n takes the inputs from ⌊i·size/n⌋ to ⌈(i+1)·size/n⌉. torch computes these positions from the example's size,
so its average pools are right at that size only, and it has no maximum pool. A cell's mean is the mean of its rows'
means, and its maximum the maximum of its rows' maxima, so the dims are pooled one after the other.

If the number of cells varies too, every cell averages the entire row through a mask. There is no such form for the
maximum, because torch's operator takes plain numbers there, and torch.export fixes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    GraphValue,
    Table,
    count_up,
    get_size,
    make_ints,
    make_number,
    move_from_back,
    move_to_back,
    set_type,
)
from fairway.torch_internals import aten_adaptive_avg_pool2d, aten_adaptive_avg_pool3d


def average_pool(self: GraphValue, output_size: Sequence[GraphValue]) -> GraphValue:
    result = self
    for back, count in enumerate(reversed(_list_cells(output_size)), 1):
        if isinstance(count, int):
            spans = _compute_spans(get_size(self, -back), count)
            parts = [op.ReduceMean(op.Slice(result, *span, [-back]), [-back], keepdims=1) for span in spans]
            result = _join(parts, len(self.shape) - back)
        else:
            row, mask = _mask_cells(self, result, back, count)
            total = op.ReduceSum(op.Where(mask, row, make_number(0.0, self)), [-1], keepdims=0)
            cells = op.ReduceSum(op.CastLike(mask, self), [-1], keepdims=0)
            result = move_from_back(op.Div(total, cells), -back, len(self.shape))
    return result


def max_pool(self: GraphValue, output_size: Sequence[GraphValue]) -> tuple[GraphValue, GraphValue]:
    """Return the maxima and their positions in the flattened dims. Of equal elements the first is taken."""
    result, place = self, None
    stride = make_ints([1])
    for back, count in enumerate(reversed(_list_cells(output_size)), 1):
        result, where, place = _max_of_spans(self, result, place, back, count)
        step = op.Mul(where, stride)
        place = step if place is None else op.Add(step, place)
        stride = op.Mul(stride, get_size(self, -back))
    return result, place


def _max_of_spans(
    self: GraphValue, result: GraphValue, place: GraphValue, back: int, count: int
) -> tuple[GraphValue, GraphValue, GraphValue]:
    """Return the maximum of each cell, its position in this dim, and its positions in the dims before."""
    values, wheres, places = [], [], []
    for start, end in _compute_spans(get_size(self, -back), count):
        part = op.Slice(result, start, end, [-back])
        where = op.ArgMax(part, axis=-back, keepdims=1)
        values.append(op.GatherElements(part, where, axis=-back))
        wheres.append(op.Add(where, start))
        if place is not None:
            places.append(op.GatherElements(op.Slice(place, start, end, [-back]), where, axis=-back))
    axis = len(self.shape) - back
    return _join(values, axis), _join(wheres, axis), _join(places, axis) if places else None


def _mask_cells(self: GraphValue, result: GraphValue, back: int, count: GraphValue) -> tuple[GraphValue, GraphValue]:
    """Return the dim at the back, with one before it for the cells, and a mask of each cell's elements."""
    length, cells = get_size(self, -back), op.Reshape(count, [1])
    cell = op.Unsqueeze(count_up(cells), [1])
    starts = op.Div(op.Mul(cell, length), cells)
    ends = op.Div(op.Add(op.Mul(op.Add(cell, [1]), length), op.Sub(cells, [1])), cells)
    here = count_up(length)
    shaped = set_type(result, self)
    shaped.shape = self.shape
    row = op.Unsqueeze(move_to_back(shaped, -back), [-2])
    return row, op.And(op.GreaterOrEqual(here, starts), op.Less(here, ends))


def _list_cells(output_size: GraphValue) -> list[GraphValue]:
    return list(output_size) if isinstance(output_size, Sequence) else [output_size]


def _compute_spans(length: GraphValue, count: int) -> list[tuple[GraphValue, GraphValue]]:
    """Return the start and end of each cell. ONNX's Div of integers rounds down, since none is negative."""
    return [
        (op.Div(op.Mul(length, [i]), [count]), op.Div(op.Add(op.Mul(length, [i + 1]), [count - 1]), [count]))
        for i in range(count)
    ]


def _join(parts: list[GraphValue], axis: int) -> GraphValue:
    return op.Concat(*parts, axis=axis) if len(parts) > 1 else parts[0]


TABLE: Table = {
    torch.ops.aten.adaptive_avg_pool1d.default: average_pool,
    torch.ops.aten.adaptive_avg_pool2d.default: average_pool,
    aten_adaptive_avg_pool2d: average_pool,
    torch.ops.aten.adaptive_avg_pool3d.default: average_pool,
    aten_adaptive_avg_pool3d: average_pool,
    torch.ops.aten.adaptive_max_pool1d.default: max_pool,
    torch.ops.aten.adaptive_max_pool2d.default: max_pool,
    torch.ops.aten.adaptive_max_pool3d.default: max_pool,
}
