"""Operators that move, repeat and select elements.

torch's squeeze also squeezes dims that are not 1, its roll takes no shift that depends on a size, and its
repeat_interleave takes no `output_size`. It has no masked_select and no nonzero_static.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from onnxscript import opset18 as op
from onnxscript import opset20

from fairway.convert.translations.builders import (
    KIND,
    GraphValue,
    Table,
    count_up,
    flatten,
    get_size,
    make_ints,
    make_number,
    narrow,
    set_type,
    widen,
)


def roll(self: GraphValue, shifts: Sequence[GraphValue], dims: Sequence[int] = ()) -> GraphValue:
    shifts = shifts if isinstance(shifts, Sequence) else [shifts]
    dims = dims if isinstance(dims, Sequence) else [dims]
    if not self.shape:
        return op.Identity(self)
    if not dims:
        row = set_type(flatten(self), self)
        return op.Reshape(_roll_dim(row, shifts[0], 0, op.Shape(row)), op.Shape(self), allowzero=1)
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        result = _roll_dim(result, shift, dim, get_size(self, dim))
    return result


def _roll_dim(value: GraphValue, shift: GraphValue, dim: int, length: GraphValue) -> GraphValue:
    back = make_ints([shift]) if isinstance(shift, int) else op.Reshape(shift, [1])
    modulus = op.Max(length, make_ints([1]))  # for an empty dim, since there is no remainder by 0
    return op.Gather(value, op.Mod(op.Sub(count_up(length), back), modulus), axis=dim)


def repeat_interleave(repeats: GraphValue, output_size: int | None = None) -> GraphValue:
    """Repeat each position as often as given: the cumulative sum of a step at the end of each run."""
    ends = op.CumSum(op.Concat(make_ints([0]), widen(repeats), axis=0), op.Constant(value_int=0))
    total = op.Slice(ends, [-1], [2**31], [0])
    none = op.Expand(op.Constant(value_int=0), op.Add(total, [1]))
    ends = op.Slice(ends, [1], [2**31], [0])
    steps = op.ScatterElements(none, ends, op.Expand(op.Constant(value_int=1), op.Shape(ends)), reduction="add")
    places = op.CumSum(op.Slice(steps, [0], [-1], [0]), op.Constant(value_int=0))
    return op.CastLike(places, repeats)


def masked_select(self: GraphValue, mask: GraphValue) -> GraphValue:
    values = widen(self)
    broadcast = op.Where(mask, values, make_number(0, values))  # in the common shape of the two
    return narrow(op.Compress(flatten(broadcast), flatten(op.Expand(mask, op.Shape(broadcast))), axis=0), self)


def nonzero_static(self: GraphValue, size: int, fill_value: int = -1) -> GraphValue:
    places = nonzero(self)
    rest = op.Expand(op.Constant(value_int=fill_value), op.Concat(make_ints([size]), op.Shape(places, start=1), axis=0))
    return op.Slice(op.Concat(places, rest, axis=0), [0], make_ints([size]), [0])


def nonzero(self: GraphValue) -> GraphValue:
    """Return one index of no numbers, or none, for a tensor without dims."""
    if self.shape:
        return op.Transpose(op.NonZero(op.Cast(self, to=KIND.BOOL)), perm=[1, 0])
    count = op.Reshape(op.Cast(op.Cast(self, to=KIND.BOOL), to=KIND.INT64), [1])
    return op.Expand(op.Constant(value_int=0), op.Concat(count, make_ints([0]), axis=0))


def grid_sampler_3d(
    input: GraphValue, grid: GraphValue, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> GraphValue:
    return opset20.GridSample(
        input,
        grid,
        align_corners=int(align_corners),
        mode=("linear", "nearest")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode],
    )


def round_number(number: GraphValue, digits: int | None = None) -> GraphValue:
    """Python's `round` of a number that was computed from sizes, to an integer."""
    if digits is not None:
        raise NotImplementedError("round(size, digits) is not translated")
    return op.Cast(op.Round(number), to=KIND.INT64)


def view_of(a: GraphValue) -> GraphValue:
    return op.Identity(a)


def squeeze(self: GraphValue, dim: int) -> GraphValue:
    """Squeeze a dim of size 1. Any other dim stays, for example one that torch.export took for larger."""
    return op.Squeeze(self, [dim]) if self.shape and self.shape[dim] == 1 else op.Identity(self)


TABLE: Table = {
    torch.ops.aten.nonzero.default: nonzero,
    torch.ops.aten.grid_sampler_3d.default: grid_sampler_3d,
    round: round_number,
    torch.ops.prims.view_of.default: view_of,
    torch.ops.aten.squeeze.dim: squeeze,
    torch.ops.aten.roll.default: roll,
    torch.ops.aten.repeat_interleave.Tensor: repeat_interleave,
    torch.ops.aten.masked_select.default: masked_select,
    torch.ops.aten.nonzero_static.default: nonzero_static,
}
