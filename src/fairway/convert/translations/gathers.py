"""Elements moved around, repeated and picked out.

torch's squeeze squeezes also what is not 1, its roll takes no shift that depends on a size, its repeat_interleave no
`output_size`. It has no masked_select and no nonzero_static.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnxscript import opset18 as op

from fairway.convert.translations.builders import KIND, Table, counted, flat, ints, narrowed, number, size, typed, wide


def roll(self: Any, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    shifts = shifts if isinstance(shifts, Sequence) else [shifts]
    dims = dims if isinstance(dims, Sequence) else [dims]
    if not self.shape:
        return op.Identity(self)
    if not dims:
        row = typed(flat(self), self)
        return op.Reshape(_rolled(row, shifts[0], 0, op.Shape(row)), op.Shape(self), allowzero=1)
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        result = _rolled(result, shift, dim, size(self, dim))
    return result


def _rolled(value: Any, shift: Any, dim: int, length: Any) -> Any:
    back = ints([shift]) if isinstance(shift, int) else op.Reshape(shift, [1])
    modulus = op.Max(length, ints([1]))  # nothing to move, and nothing to divide by
    return op.Gather(value, op.Mod(op.Sub(counted(length), back), modulus), axis=dim)


def repeat_interleave(repeats: Any, output_size: int | None = None) -> Any:
    """Each place as often as told: a step at the end of each run, summed up."""
    ends = op.CumSum(op.Concat(ints([0]), wide(repeats), axis=0), op.Constant(value_int=0))
    total = op.Slice(ends, [-1], [2**31], [0])
    none = op.Expand(op.Constant(value_int=0), op.Add(total, [1]))
    ends = op.Slice(ends, [1], [2**31], [0])
    steps = op.ScatterElements(none, ends, op.Expand(op.Constant(value_int=1), op.Shape(ends)), reduction="add")
    places = op.CumSum(op.Slice(steps, [0], [-1], [0]), op.Constant(value_int=0))
    return op.CastLike(places, repeats)


def masked_select(self: Any, mask: Any) -> Any:
    values = wide(self)
    both = op.Where(mask, values, number(0, values))  # in the shape that the two have together
    return narrowed(op.Compress(flat(both), flat(op.Expand(mask, op.Shape(both))), axis=0), self)


def nonzero_static(self: Any, size: int, fill_value: int = -1) -> Any:
    found = op.Transpose(op.NonZero(op.Cast(self, to=KIND.BOOL)), perm=[1, 0])
    rest = op.Expand(op.Constant(value_int=fill_value), op.Concat(ints([size]), op.Shape(found, start=1), axis=0))
    return op.Slice(op.Concat(found, rest, axis=0), [0], ints([size]), [0])


def squeeze(self: Any, dim: int) -> Any:
    """Where the dim is not 1, as where torch.export took it for more, nothing happens."""
    return op.Squeeze(self, [dim]) if self.shape and self.shape[dim] == 1 else op.Identity(self)


TABLE: Table = {
    torch.ops.aten.squeeze.dim: squeeze,
    torch.ops.aten.roll.default: roll,
    torch.ops.aten.repeat_interleave.Tensor: repeat_interleave,
    torch.ops.aten.masked_select.default: masked_select,
    torch.ops.aten.nonzero_static.default: nonzero_static,
}
