"""Compute with a large weight in float64 one part at a time. The entire weight would take two to four times its bytes.

This is also faster: all parts use the same pages, while the kernel would map new ones for each entire weight.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator

PART_BYTES = 4 * 2**20
"""The size of a part, and the smallest weight that is widened in parts. Other sizes of parts were not faster."""
HUGE_WEIGHT_BYTES = 128 * 2**20
"""If a weight this large must be widened at once, mapped pages are released first."""

_aten = torch.ops.aten


def run_in_parts(func: Operator, args: Items, kwargs: NamedItems) -> Item:
    """Run an operator that moves the numbers of a large tensor or multiplies rows with it, or return NotImplemented.

    Views keep their narrow dtype, because a product usually follows.
    """
    if func.is_view or func is _aten.embedding.default:
        return func(*args, **kwargs)
    if kwargs or func not in (_aten.mm.default, _aten.addmm.default):
        return NotImplemented
    *bias, rows, matrix = args
    if matrix.dtype == torch.float64:
        return NotImplemented  # the large tensor is on the left
    wide = rows.double()
    step = max(1, PART_BYTES // (8 * matrix.shape[0]))
    room = _allocate_room(max(PART_BYTES // 8, matrix.shape[0]))
    result = wide.new_empty(wide.shape[0], matrix.shape[1])
    for part, into in zip(matrix.split(step, 1), result.split(step, 1), strict=True):
        widened = room[: part.numel()].view(part.mT.shape).copy_(part.mT)
        torch.mm(wide, widened.mT, out=into)
    return result.add_(bias[0].double()) if bias else result


@lru_cache(maxsize=1)
def _allocate_room(numbers: int) -> torch.Tensor:
    """Return memory for one part, which is kept: memory that is freed and allocated again consists of new pages."""
    return torch.empty(numbers, dtype=torch.float64)
