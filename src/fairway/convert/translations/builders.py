"""What translations are built from: numbers of a tensor's own type, dims moved aside, sizes as tensors.

A translation runs inside torch.onnx, which records every call of `op`. The values it gets are ir.Values with dtype and
shape; a dynamic size is a symbol, so sizes are asked of the graph (`op.Shape`), never of Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18 as op
from onnxscript.values import Opset

Table = dict[torch._ops.OpOverload, Callable[..., Any]]
"""Translations by operator."""

KIND = ir.DataType

OWN = Opset("fairway", 1)
"""The domain of functions with a loop in them; torch.onnx writes them into the graph where they are called."""

_LARGEST = {
    KIND.INT64: 2**63 - 1,
    KIND.INT32: 2**31 - 1,
    KIND.INT16: 2**15 - 1,
    KIND.INT8: 2**7 - 1,
    KIND.UINT8: 2**8 - 1,
}


def number(value: float, kind: Any) -> Any:
    """A number of a type, given by name or by a tensor that has it."""
    kind = getattr(kind, "dtype", kind)
    return op.Constant(value=ir.tensor(value, dtype=kind))


def is_float(value: Any) -> bool:
    return bool(value.dtype.is_floating_point())


def best_of(value: Any, largest: bool) -> float:
    """The largest or the lowest number of the tensor's type."""
    if is_float(value):
        return math.inf if largest else -math.inf
    top = _LARGEST[value.dtype]
    return top if largest else (0 if value.dtype == KIND.UINT8 else -top - 1)


def size(value: Any, dim: int) -> Any:
    """The size of one dim, as a tensor of one number."""
    dim %= len(value.shape)
    return op.Shape(value, start=dim, end=dim + 1)


def counted(length: Any) -> Any:
    """0, 1, 2… up to a length given as a tensor of one number."""
    return op.Range(op.Constant(value_int=0), op.Squeeze(length, [0]), op.Constant(value_int=1))


def to_front(value: Any, dim: int) -> Any:
    """The tensor with one dim moved to the front."""
    rank = len(value.shape)
    return value if dim % rank == 0 else op.Transpose(value, perm=_moved(rank, dim, 0))


def from_front(value: Any, dim: int, rank: int) -> Any:
    """The front dim back in its place."""
    return value if dim % rank == 0 else op.Transpose(value, perm=_moved(rank, 0, dim))


def to_back(value: Any, dim: int) -> Any:
    """The tensor with one dim moved to the back."""
    rank = len(value.shape)
    return value if dim % rank == rank - 1 else op.Transpose(value, perm=_moved(rank, dim, -1))


def from_back(value: Any, dim: int, rank: int) -> Any:
    """The last dim back in its place."""
    return value if dim % rank == rank - 1 else op.Transpose(value, perm=_moved(rank, -1, dim))


def _moved(rank: int, dim: int, to: int) -> list[int]:
    perm = [d for d in range(rank) if d != dim % rank]
    perm.insert(to % rank, dim % rank)
    return perm


def cast(value: Any, kind: ir.DataType) -> Any:
    """The tensor in another type. What `op` answers has neither dtype nor shape, so both are noted on it."""
    return value if value.dtype == kind else like(op.Cast(value, to=kind), value, kind)


def like(value: Any, other: Any, kind: ir.DataType | None = None) -> Any:
    """Notes on a new value that it has the shape of another, and its dtype unless another is told."""
    value.dtype, value.shape = kind or other.dtype, other.shape
    return value


def typed(value: Any, kind: Any) -> Any:
    """Notes on a new value that it has a type, given by name or by a tensor that has it."""
    value.dtype = getattr(kind, "dtype", kind)
    return value


def wide(value: Any) -> Any:
    """Bools and short whole numbers as int64, for which the runtime has every kernel; others as they are."""
    return value if is_float(value) else cast(value, KIND.INT64)


def narrowed(value: Any, other: Any) -> Any:
    """Undoes `wide`, for what was made of `other`."""
    return value if is_float(other) or other.dtype == KIND.INT64 else op.Cast(value, to=other.dtype)


def flat(value: Any) -> Any:
    return op.Reshape(value, [-1])


def is_none(value: Any) -> bool:
    """An optional argument that was not given; torchlib's own default for a dtype is -1."""
    return value is None or (isinstance(value, int) and value == -1)


def ints(values: Sequence[int]) -> Any:
    return op.Constant(value_ints=list(values))
