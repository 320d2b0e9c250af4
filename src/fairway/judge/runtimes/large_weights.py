"""A large weight in float64, a part at a time: whole, it is twice or four times as large as it lies in its file.

It is faster, too: the same pages serve all parts, where the kernel would hand out new ones for each whole weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

PART = 4 * 2**20
"""Bytes of a part, and of a weight that is widened in parts. Larger parts were slower, smaller ones not faster."""
HUGE = 128 * 2**20
"""Bytes of a weight for which room is made before it is widened as a whole, where that must be."""

_aten = torch.ops.aten


def in_parts(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an operator makes of a large tensor whose numbers it hands on, or multiplies rows with; else NotImplemented.

    Views stay as narrow as they are, for the product that they are made for.
    """
    if func.is_view or func is _aten.embedding.default:
        return func(*args, **kwargs)
    if kwargs or func not in (_aten.mm.default, _aten.addmm.default):
        return NotImplemented
    *bias, rows, matrix = args
    if matrix.dtype == torch.float64:
        return NotImplemented  # the large one stands on the left
    wide = rows.double()
    step = max(1, PART // (8 * matrix.shape[0]))
    room = _room(max(PART // 8, matrix.shape[0]))
    result = wide.new_empty(wide.shape[0], matrix.shape[1])
    for part, into in zip(matrix.split(step, 1), result.split(step, 1), strict=True):
        widened = room[: part.numel()].view(part.mT.shape).copy_(part.mT)
        torch.mm(wide, widened.mT, out=into)
    return result.add_(bias[0].double()) if bias else result


@lru_cache(maxsize=1)
def _room(numbers: int) -> torch.Tensor:
    """Room for one part, kept: whatever is freed and asked for again comes as new pages."""
    return torch.empty(numbers, dtype=torch.float64)
