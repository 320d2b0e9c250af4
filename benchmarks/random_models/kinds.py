"""The kinds of values in a random program: a dtype and a shape over two dims, `batch` 1..3 and `n` 1..6."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

BATCH, N = range(1, 4), range(1, 7)
BOUNDS = {"batch": (BATCH[0], BATCH[-1]), "n": (N[0], N[-1])}
POINTS = tuple(product(BATCH, N))
"""Every size of the domain."""

FLOATS = ("float32", "float16", "float64")
INTS = ("int64", "int32")
EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


class Size(NamedTuple):
    """A size c + b·batch + n·n + bn·batch·n."""

    c: int = 0
    b: int = 0
    n: int = 0
    bn: int = 0

    def at(self, batch: int, n: int) -> int:
        return self.c + self.b * batch + self.n * n + self.bn * batch * n

    def plus(self, other: Size) -> Size:
        return Size(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, other: Size) -> Size | None:
        """The product, where it is still of this form."""
        for one, two in ((self, other), (other, self)):
            if one.fixed is not None:
                return Size(*(one.c * term for term in two))
        if (self, other) in ((Size(b=1), Size(n=1)), (Size(n=1), Size(b=1))):
            return Size(bn=1)
        return None

    @property
    def fixed(self) -> int | None:
        return None if self.b or self.n or self.bn else self.c

    @property
    def least(self) -> int:
        return min(self.at(*point) for point in POINTS)


B, NN = Size(b=1), Size(n=1)


def fixed(size: int) -> Size:
    return Size(c=size)


@dataclass(frozen=True)
class Kind:
    """A dtype and a shape."""

    dtype: str
    shape: tuple[Size, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_int(self) -> bool:
        return self.dtype in INTS

    @property
    def is_bool(self) -> bool:
        return self.dtype == "bool"

    def of(self, dtype: str) -> Kind:
        return Kind(dtype, self.shape)

    def reshaped(self, *shape: Size) -> Kind:
        return Kind(self.dtype, tuple(shape))

    def with_axis(self, axis: int, *sizes: Size) -> Kind:
        """The same with one axis replaced by none, one or several."""
        return Kind(self.dtype, (*self.shape[:axis], *sizes, *self.shape[axis + 1 :]))


def promote(one: str, two: str) -> str:
    """The dtype of a sum, as torch promotes tensors that have dims."""
    order = ("bool", "int32", "int64", "float16", "float32", "float64")
    return max(one, two, key=order.index)


def broadcast(one: tuple[Size, ...], two: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """The common shape, or None where there is none that holds at every point."""
    rank = max(len(one), len(two))
    found = []
    for a, b in zip((fixed(1),) * (rank - len(one)) + one, (fixed(1),) * (rank - len(two)) + two, strict=True):
        if a != b and a != fixed(1) and b != fixed(1):
            return None
        found.append(b if a == fixed(1) else a)
    return tuple(found)
