"""A huge weight in float64, a part at a time: whole, it is twice or four times as large as it lies in its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

HUGE = 128 * 2**20
"""Bytes from which on a tensor is huge."""

_aten = torch.ops.aten


def is_huge(item: torch.Tensor) -> bool:
    return item.nbytes >= HUGE


def in_parts(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an operator makes of a huge tensor whose numbers it hands on, or multiplies rows with; else NotImplemented.

    Views stay as narrow as they are, for the product that they are made for.
    """
    if func.is_view or func is _aten.embedding.default:
        return func(*args, **kwargs)
    if kwargs or func not in (_aten.mm.default, _aten.addmm.default):
        return NotImplemented
    *bias, rows, matrix = args
    if is_huge(rows):
        return NotImplemented
    wide = rows.double()
    step = max(1, HUGE // (8 * matrix.shape[0]))
    result = torch.cat([wide @ part.double() for part in matrix.split(step, 1)], 1)
    return result + bias[0].double() if bias else result
