"""Dims, their bounds, and the integer expressions over them that shapes are made of."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

Point = Mapping[str, int]
"""One size for each dim."""

UNDECLARED_HIGH = 64
"""Upper bound for a dim without declared bounds; evidence always states the range that was used."""

MAX_BOUND = 2**40
"""The largest legal bound. A single byte for each would be a terabyte."""

MAX_SIZE_CHARACTERS = 200
"""Characters in one size. Python's parser and the recursion over its tree limit nesting; this is below both limits."""

MAX_NAMES = 8
"""Names in one size. Each doubles the number of corners at which the size is checked."""

_SIZE_CHARACTERS = re.compile(r"(?:[^\W\d]\w*+|[0-9]++(?!\w)|[\s+*/()-])++")
"""The characters of a size. Anything else never reaches Python's parser."""

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class Size:
    """A size in a shape: a number, a dim's name, or an expression such as `2*time` or `past+seq`."""

    text: str

    @cached_property
    def _tree(self) -> ast.expr:
        tree = ast.parse(self.text, mode="eval").body
        _check_tree(tree)
        return tree

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n.id for n in ast.walk(self._tree) if isinstance(n, ast.Name)))

    @property
    def constant_value(self) -> int | None:
        return None if self.names else self.at({})

    def at(self, point: Point) -> int:
        return _evaluate(self._tree, point)

    @cached_property
    def affine(self) -> tuple[str, int, int] | None:
        """Return (name, a, b) if the size is a*name+b, else None. It is evaluated, so the spelling does not matter."""
        if len(self.names) != 1:
            return None
        name = self.names[0]
        values = [self.at({name: n}) for n in (60, 61, 127)]
        slope = values[1] - values[0]
        offset = values[0] - 60 * slope
        return (name, slope, offset) if slope and values[2] == slope * 127 + offset else None

    def __str__(self) -> str:
        return self.text


def parse_size(text: str) -> Size:
    """Parse a size; raise ValueError if the text is not one."""
    text = text.strip()
    if len(text) > MAX_SIZE_CHARACTERS or not _SIZE_CHARACTERS.fullmatch(text):
        raise ValueError(f"{text[:MAX_SIZE_CHARACTERS]!r} is not a size: use whole numbers, names, + - * //")
    size = Size(text)
    try:
        fixed = size.constant_value  # parses now, so that a bad size is refused early
    except (SyntaxError, ZeroDivisionError) as error:
        raise ValueError(f"{text!r} is not a size") from error
    if fixed is not None and fixed < 0:
        raise ValueError(f"{text!r} is not a size: it is below 0")
    if len(size.names) > MAX_NAMES:
        raise ValueError(f"{text!r} is not a size: it has more than {MAX_NAMES} names")
    return size


def _check_tree(tree: ast.expr) -> None:
    match tree:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return
        case ast.Name():
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check_tree(left)
            _check_tree(right)
        case _:
            raise ValueError(f"{ast.unparse(tree)!r} is not a size: use whole numbers, names, + - * //")


def _evaluate(tree: ast.expr, point: Point) -> int:
    match tree:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return point[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, point), _evaluate(right, point))
    raise AssertionError(ast.dump(tree))


@dataclass(frozen=True)
class Dim:
    """A varying dim. `declared` is true if the user gave the bounds, and false if Fairway chose them."""

    name: str
    low: int
    high: int
    multiple: int = 1
    declared: bool = True

    def __post_init__(self) -> None:
        bounds = f"{self.low}..{self.high}" + (f" in multiples of {self.multiple}" if self.multiple != 1 else "")
        if self.low < 0 or self.multiple < 1:
            raise complain(
                Code.EMPTY_RANGE,
                f"dim {self.name}: {bounds[:MAX_SIZE_CHARACTERS]}; a bound is at least 0, a multiple at least 1",
            )
        if max(self.high, self.multiple) > MAX_BOUND:
            raise complain(
                Code.INPUTS_TOO_LARGE, f"dim {self.name}: {bounds[:MAX_SIZE_CHARACTERS]}; a bound is at most 2^40"
            )
        if not self.sizes:
            raise complain(Code.EMPTY_RANGE, f"dim {self.name}: {bounds} contains no size")

    @property
    def sizes(self) -> range:
        first = -(-self.low // self.multiple) * self.multiple
        return range(first, self.high + 1, self.multiple)

    def __str__(self) -> str:
        return f"{self.name} {self.low}..{self.high}" + (f" %{self.multiple}" if self.multiple > 1 else "")


@dataclass(frozen=True)
class Domain:
    """All varying dims of a subject. A point is legal if each size is in its dim's range."""

    dims: tuple[Dim, ...]

    def __iter__(self) -> Iterator[Dim]:
        return iter(self.dims)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.dims)

    def __getitem__(self, name: str) -> Dim:
        return next(d for d in self.dims if d.name == name)

    def holds(self, point: Point) -> bool:
        return all(d.name in point and point[d.name] in d.sizes for d in self.dims)

    @property
    def is_declared(self) -> bool:
        return all(d.declared for d in self.dims)

    def as_dict(self) -> dict[str, dict[str, int | bool]]:
        return {
            d.name: {"low": d.low, "high": d.high, "multiple": d.multiple, "declared": d.declared} for d in self.dims
        }

    def __str__(self) -> str:
        return ", ".join(map(str, self.dims)) or "one fixed shape"


def build_domain(
    names: Iterable[str],
    bounds: Mapping[str, tuple[int, int]],
    multiples: Mapping[str, int],
    sizes_seen: Mapping[str, int] | None = None,
) -> Domain:
    """Return the domain over `names`; refuse bounds for other names. Example sizes widen undeclared bounds."""
    names = tuple(dict.fromkeys(names))
    for name in (*bounds, *multiples):
        if name not in names:
            known = ", ".join(names) or "none"
            raise complain(Code.UNKNOWN_DIM, f"{name!r} is not a dim of any input; the dims are: {known}")
    dims = []
    for name in names:
        multiple = multiples.get(name, 1)
        if name in bounds:
            low, high = _read_bounds(name, bounds[name])
        else:
            low, high = multiple, max(UNDECLARED_HIGH, 4 * multiple, 2 * (sizes_seen or {}).get(name, 0))
        dims.append(Dim(name, low, high, multiple, declared=name in bounds))
    return Domain(tuple(dims))


def _read_bounds(name: str, bounds: object) -> tuple[int, int]:
    match bounds:
        case (int(low), int(high)):
            return low, high
    raise complain(
        Code.EMPTY_RANGE,
        f"dim {name}: expected bounds (low, high), got {bounds!r}",
        todo=("Give two whole numbers: (low, high).",),
    )


def describe_point(point: Point) -> str:
    """Return a point's sizes in words."""
    return ", ".join(f"{k}={v}" for k, v in point.items()) or "the fixed shape"
