"""Python lists that only count, `list(range(n))`, are told apart: made a tensor, they are one `torch.arange`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import torch

_MAKING = (torch.tensor, torch.as_tensor)
_THROUGH = ("list", "tuple")


@dataclass(frozen=True)
class CountedRange:
    """The arguments of the `range`, and whether it is gone through backwards."""

    bounds: tuple[ast.expr, ...]
    backwards: bool = False


def counted(node: ast.Call, live: Any) -> CountedRange | None:
    """What a call that makes a tensor of a counting list counts; None for every other call.

    `live` is the function that is called.
    """
    return _read(node.args[0]) if live in _MAKING and len(node.args) == 1 else None


def _read(node: ast.expr) -> CountedRange | None:
    match node:
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if 1 <= len(args) <= 3:
            return None if any(isinstance(one, ast.Starred) for one in args) else CountedRange(tuple(args))
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _THROUGH:
            return _read(inner)
        case ast.Call(func=ast.Name(id="reversed"), args=[inner], keywords=[]):
            return _turned(_read(inner))
        case ast.Subscript(value=inner, slice=ast.Slice(lower=None, upper=None, step=ast.UnaryOp() as step)):
            return _turned(_read(inner)) if ast.unparse(step) == "-1" else None
    return None


def _turned(read: CountedRange | None) -> CountedRange | None:
    return None if read is None else CountedRange(read.bounds, not read.backwards)


def count(*bounds: Any, backwards: bool, **options: Any) -> torch.Tensor:
    """The tensor of a counting list."""
    if len(bounds) == 3 and not isinstance(bounds[2], int):
        raise TypeError("the step of a range is a size")
    made = torch.arange(*bounds, **options)
    return made.flip(0) if backwards else made
