"""Recognize Python lists that only count, `list(range(n))`. Made a tensor, they are one `torch.arange`."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import torch

from fairway.convert.rewrite.scalars import RuntimeValue

_TENSOR_MAKERS = (torch.tensor, torch.as_tensor)
_SEQUENCE_MAKERS = ("list", "tuple")


@dataclass(frozen=True)
class CountedRange:
    """The arguments of a `range`, and its direction."""

    bounds: tuple[ast.expr, ...]
    backwards: bool = False


def read_counting_list(node: ast.Call, live: object) -> CountedRange | None:
    """Return the range behind a call that makes a tensor of a counting list, and None for every other call.

    `live` is the function that is called.
    """
    return _read_range(node.args[0]) if live in _TENSOR_MAKERS and len(node.args) == 1 else None


def _read_range(node: ast.expr) -> CountedRange | None:
    match node:
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if 1 <= len(args) <= 3:
            return None if any(isinstance(bound, ast.Starred) for bound in args) else CountedRange(tuple(args))
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _SEQUENCE_MAKERS:
            return _read_range(inner)
        case ast.Call(func=ast.Name(id="reversed"), args=[inner], keywords=[]):
            return _reverse_range(_read_range(inner))
        case ast.Subscript(value=inner, slice=ast.Slice(lower=None, upper=None, step=ast.UnaryOp() as step)):
            return _reverse_range(_read_range(inner)) if ast.unparse(step) == "-1" else None
    return None


def _reverse_range(counted: CountedRange | None) -> CountedRange | None:
    return None if counted is None else CountedRange(counted.bounds, not counted.backwards)


def count(*bounds: RuntimeValue, backwards: bool, **options: RuntimeValue) -> torch.Tensor:
    """Return the tensor of a counting list."""
    if len(bounds) == 3 and not isinstance(bounds[2], int):
        raise TypeError("the step of a range is a size")
    made = torch.arange(*bounds, **options)
    return made.flip(0) if backwards else made
