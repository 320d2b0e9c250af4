"""Evaluate a Python condition on sizes at every point of a domain at once, with numpy and without running any code."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairway.model.dims import Domain

MAX_GRID_POINTS = 10**7
"""A condition is evaluated at every point of a domain with no more points than this."""

Numbers = Any
"""A number, or an array with one axis for each dim. Several of them are a tuple."""

_BINARY: dict[type[ast.operator], Callable[[Numbers, Numbers], Numbers]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Numbers, Numbers], Numbers]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLS: dict[str, Callable[..., Numbers]] = {
    "max": lambda *items: _fold(np.maximum, items),
    "min": lambda *items: _fold(np.minimum, items),
    "abs": np.abs,
    "int": lambda item: np.trunc(item).astype(np.int64),
    "float": lambda item: np.asarray(item, np.float64),
    "bool": lambda item: np.asarray(item) != 0,
    "round": np.round,
    "math.ceil": lambda item: np.ceil(item).astype(np.int64),
    "math.floor": lambda item: np.floor(item).astype(np.int64),
    "math.sqrt": np.sqrt,
    "math.log2": np.log2,
}


class CannotEvaluate(Exception):
    """The expression contains something other than arithmetic on known numbers."""


def _fold(function: Callable[[Numbers, Numbers], Numbers], items: Sequence[Numbers]) -> Numbers:
    result = items[0]
    for item in items[1:]:
        result = function(result, item)
    return result


def evaluate(tree: ast.expr, known: Mapping[str, Numbers]) -> Numbers:
    """Return the value of an expression; `known` holds numbers or arrays by the text of the names they replace."""
    text = ast.unparse(tree)
    if text in known:
        return known[text]
    match tree:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.BinOp(left, op, right) if type(op) in _BINARY:
            with np.errstate(all="ignore"):
                return _BINARY[type(op)](evaluate(left, known), evaluate(right, known))
        case ast.UnaryOp(ast.USub(), operand):
            return -evaluate(operand, known)
        case ast.UnaryOp(ast.Not(), operand):
            return np.logical_not(evaluate(operand, known))
        case ast.BoolOp(op, values):
            combine = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return _fold(combine, [np.asarray(evaluate(value, known)) != 0 for value in values])
        case ast.Compare(left, ops, comparators):
            items = [evaluate(item, known) for item in (left, *comparators)]
            parts = [_compare(op, a, b) for op, a, b in zip(ops, items, items[1:], strict=False)]
            return _fold(np.logical_and, parts)
        case ast.IfExp(test, body, orelse):
            return np.where(*(evaluate(part, known) for part in (test, body, orelse)))
        case ast.Call(func, args, []) if ast.unparse(func) in _CALLS:
            return _CALLS[ast.unparse(func)](*(evaluate(arg, known) for arg in args))
    raise CannotEvaluate(text)


def _compare(op: ast.cmpop, first: Numbers, second: Numbers) -> Numbers:
    """Compare two numbers, two tuples of numbers, or a number with those of a tuple."""
    several = [isinstance(item, tuple) for item in (first, second)]
    if isinstance(op, ast.In | ast.NotIn) and several == [False, True]:
        inside = _fold(np.logical_or, [np.asarray(False), *(np.equal(first, item) for item in second)])
        return inside if isinstance(op, ast.In) else np.logical_not(inside)
    if isinstance(op, ast.Eq | ast.NotEq) and all(several):
        pairs = zip(first, second, strict=True) if len(first) == len(second) else [(0, 1)]
        equal = _fold(np.logical_and, [np.asarray(True), *(np.equal(a, b) for a, b in pairs)])
        return equal if isinstance(op, ast.Eq) else np.logical_not(equal)
    if any(several) or type(op) not in _COMPARE:
        raise CannotEvaluate(type(op).__name__)
    return _COMPARE[type(op)](first, second)


@dataclass(frozen=True)
class Grid:
    """The sizes of a domain, one axis for each dim, so that numpy broadcasts a condition over all points."""

    names: tuple[str, ...]
    sizes: tuple[npt.NDArray[np.int64], ...]

    @property
    def points(self) -> int:
        return math.prod(len(axis) for axis in self.sizes)

    def arrays(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return each dim's sizes along a separate axis."""
        count = len(self.names)
        shapes = [tuple(-1 if i == k else 1 for i in range(count)) for k in range(count)]
        return {n: s.reshape(shape) for n, s, shape in zip(self.names, self.sizes, shapes, strict=True)}

    def find_points(self, condition: Numbers, most: int) -> tuple[int, list[dict[str, int]]]:
        """Count the points at which a condition holds, and return up to `most`, spread over all of them."""
        hits = np.flatnonzero(np.broadcast_to(condition, tuple(map(len, self.sizes))))
        if len(hits) > most:
            # Evenly spread, and the first: small sizes are cheap to run.
            hits_shown = hits[np.unique(np.linspace(0, len(hits) - 1, most).astype(np.int64))]
        else:
            hits_shown = hits
        places = np.unravel_index(hits_shown, tuple(map(len, self.sizes))) if self.names else ()
        points = [
            {n: int(s[place[i]]) for n, s, place in zip(self.names, self.sizes, places, strict=True)}
            for i in range(len(hits_shown))
        ]
        return len(hits), points


def make_grid(domain: Domain, names: Sequence[str] | None = None) -> Grid:
    """Return the grid over all dims of a domain, or over the named ones."""
    dims = [d for d in domain.dims if names is None or d.name in names]
    return Grid(tuple(d.name for d in dims), tuple(np.asarray(list(d.sizes), np.int64) for d in dims))


def thin_out(grid: Grid, most: int = MAX_GRID_POINTS) -> Grid:
    """Return the grid with fewer sizes along its longest dims, so that it has at most `most` points.

    It keeps the ends, the small sizes, and others spread evenly.
    """
    sizes = list(grid.sizes)
    while math.prod(map(len, sizes)) > most:
        longest = max(range(len(sizes)), key=lambda k: len(sizes[k]))
        axis = sizes[longest]
        keep = max(2, len(axis) // 2)
        places = np.unique(
            np.concatenate(
                [np.arange(min(keep // 2, len(axis))), np.linspace(0, len(axis) - 1, keep - keep // 2).astype(np.int64)]
            )
        )
        sizes[longest] = axis[places]
    return Grid(grid.names, tuple(sizes))
