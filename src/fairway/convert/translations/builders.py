"""Helpers for translations: numbers in a tensor's type, dims moved to an end, sizes as tensors.

A translation runs inside torch.onnx, which records every call of `op`. The values it gets are ir.Values with dtype and
shape. A dynamic size is a symbol, so sizes are read in the graph (`op.Shape`), never in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript import opset18 as op
from onnxscript.values import Opset

from fairway.torch_internals import GraphValue as GraphValue
from fairway.torch_internals import OpOverload

Table = dict[OpOverload | Callable[..., Any], Callable[..., Any]]
"""Translations by operator."""


KIND = ir.DataType

FAIRWAY_OPSET = Opset("fairway", 1)
"""The domain of functions with a loop in them. torch.onnx inlines them into the graph."""

_LARGEST_NUMBERS = {
    KIND.INT64: 2**63 - 1,
    KIND.INT32: 2**31 - 1,
    KIND.INT16: 2**15 - 1,
    KIND.INT8: 2**7 - 1,
    KIND.UINT8: 2**8 - 1,
}


def make_number(value: float, kind: GraphValue) -> GraphValue:
    """Return a number of a type, given by name or by a tensor that has it."""
    kind = getattr(kind, "dtype", kind)
    return op.Constant(value=ir.tensor(value, dtype=kind))


def is_float(value: GraphValue) -> bool:
    return bool(value.dtype.is_floating_point())


def get_extreme(value: GraphValue, largest: bool) -> float:
    """Return the largest or the lowest number of the tensor's type."""
    if is_float(value):
        return math.inf if largest else -math.inf
    top = _LARGEST_NUMBERS[value.dtype]
    return top if largest else (0 if value.dtype == KIND.UINT8 else -top - 1)


def get_size(value: GraphValue, dim: int) -> GraphValue:
    """Return the size of one dim, as a tensor of one number."""
    dim %= len(value.shape)
    return op.Shape(value, start=dim, end=dim + 1)


def count_up(length: GraphValue) -> GraphValue:
    """Return 0, 1, 2… up to a length given as a tensor of one number."""
    return op.Range(op.Constant(value_int=0), op.Squeeze(length, [0]), op.Constant(value_int=1))


def move_to_front(value: GraphValue, dim: int) -> GraphValue:
    """Move one dim to the front."""
    rank = len(value.shape)
    return value if dim % rank == 0 else op.Transpose(value, perm=_make_permutation(rank, dim, 0))


def move_from_front(value: GraphValue, dim: int, rank: int) -> GraphValue:
    """Move the front dim back to its position."""
    return value if dim % rank == 0 else op.Transpose(value, perm=_make_permutation(rank, 0, dim))


def move_to_back(value: GraphValue, dim: int) -> GraphValue:
    """Transpose the value so that this dim is the last one. If it is, return the value as it is."""
    rank = len(value.shape)
    return value if dim % rank == rank - 1 else op.Transpose(value, perm=_make_permutation(rank, dim, -1))


def move_from_back(value: GraphValue, dim: int, rank: int) -> GraphValue:
    """Move the last dim back to its position."""
    return value if dim % rank == rank - 1 else op.Transpose(value, perm=_make_permutation(rank, -1, dim))


def _make_permutation(rank: int, dim: int, to: int) -> list[int]:
    perm = [d for d in range(rank) if d != dim % rank]
    perm.insert(to % rank, dim % rank)
    return perm


def cast(value: GraphValue, kind: ir.DataType) -> GraphValue:
    """Return the tensor in another type. Results of `op` have neither dtype nor shape, so both are set."""
    return value if value.dtype == kind else set_like(op.Cast(value, to=kind), value, kind)


def set_like(value: GraphValue, other: GraphValue, kind: ir.DataType | None = None) -> GraphValue:
    """Give a new value the shape of another, and its dtype or the one given."""
    value.dtype, value.shape = kind or other.dtype, other.shape
    return value


def set_type(value: GraphValue, kind: GraphValue) -> GraphValue:
    """Give a new value a type, named or taken from a tensor."""
    value.dtype = getattr(kind, "dtype", kind)
    return value


def widen(value: GraphValue) -> GraphValue:
    """Return bools and short integers as int64, for which the runtime has every kernel, and others as they are."""
    return value if is_float(value) else cast(value, KIND.INT64)


def narrow(value: GraphValue, other: GraphValue) -> GraphValue:
    """Undo `widen` for a value made from `other`."""
    return value if is_float(other) or other.dtype == KIND.INT64 else op.Cast(value, to=other.dtype)


def flatten(value: GraphValue) -> GraphValue:
    return op.Reshape(value, [-1])


def is_none(value: GraphValue) -> bool:
    """Return whether an optional argument was not given. torchlib's default for a dtype is -1."""
    return value is None or (isinstance(value, int) and value == -1)


def make_ints(values: Sequence[int]) -> GraphValue:
    return op.Constant(value_ints=list(values))
