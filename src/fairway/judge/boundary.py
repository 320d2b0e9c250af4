"""From a failing point to the smallest failing shape, and to the line between right and wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairway.model.dims import Dim, Domain, Point


@dataclass(frozen=True)
class Boundary:
    """Along `dim`, with the other dims as in the example: right at `right`, wrong at `wrong`, its neighbour."""

    dim: str
    right: int
    wrong: int
    clean: bool = True
    """Whether every size tried on either side agrees; some defects come and go with the size."""
    wrong_at: tuple[int, ...] = ()
    """Sizes on the far side that were seen wrong."""

    def __str__(self) -> str:
        if not self.clean:
            return f"right at {self.dim}={self.right}, wrong at {self.wrong} and elsewhere"
        if self.wrong > self.right:
            return f"right up to {self.dim}={self.right}, wrong from {self.wrong}"
        return f"right down to {self.dim}={self.right}, wrong at {self.wrong}"


@dataclass(frozen=True)
class Shrunk:
    point: dict[str, int]
    boundaries: tuple[Boundary, ...]
    fixed: tuple[str, ...]
    """Dims at which only the example's size is right."""

    @property
    def wrong_at(self) -> dict[str, tuple[int, ...]]:
        """Sizes above the example that were seen wrong, of the dims that have more than one right size."""
        above = [edge for edge in self.boundaries if edge.wrong > edge.right]
        return {edge.dim: edge.wrong_at for edge in above if edge.dim not in self.fixed}


def shrink(domain: Domain, failing: Point, example: Point, bad: Callable[[Point], bool]) -> Shrunk:
    """The smallest failing point reachable one dim at a time, and the boundaries around the example.

    Bisection assumes one change along a dim; the two sizes it ends at were both tested, so what is said of them is true
    even where that assumption is not.
    """
    bad = _remembering(bad)
    point = dict(failing)
    for dim in domain.dims:
        point[dim.name] = _smallest(dim, point, bad)
    if bad(example):
        return Shrunk(point, (), ())
    boundaries: list[Boundary] = []
    fixed: list[str] = []
    for dim in domain.dims:
        ends = [e for e in (dim.sizes[-1], dim.sizes[0]) if e != example[dim.name]]
        found = [edge for end in ends if (edge := _towards(dim, end, example, bad)) is not None]
        boundaries += found
        if ends and len(found) == len(ends) and all(edge.right == example[dim.name] for edge in found):
            fixed.append(dim.name)
    return Shrunk(point, tuple(boundaries), tuple(fixed))


def _smallest(dim: Dim, point: Point, bad: Callable[[Point], bool]) -> int:
    sizes = dim.sizes
    if bad({**point, dim.name: sizes[0]}):
        return sizes[0]
    _, wrong = _bisect(0, sizes.index(point[dim.name]), lambda i: bad({**point, dim.name: sizes[i]}))
    return sizes[wrong]


def _towards(dim: Dim, end: int, example: Point, bad: Callable[[Point], bool]) -> Boundary | None:
    """The boundary between the example's size and `end`; None where `end` is right."""
    if not bad({**example, dim.name: end}):
        return None
    sizes = dim.sizes

    def bad_at(index: int) -> bool:
        return bad({**example, dim.name: sizes[index]})

    last = sizes.index(end)
    right, wrong = _bisect(sizes.index(example[dim.name]), last, bad_at)
    first = 0 if end == sizes[-1] else len(sizes) - 1
    far = _between(wrong, last)
    wrong_at = tuple(sizes[i] for i in sorted(far) if bad_at(i))
    clean = len(wrong_at) == len(far) and not any(bad_at(i) for i in _between(first, right))
    return Boundary(dim.name, sizes[right], sizes[wrong], clean, wrong_at)


def _between(a: int, b: int) -> set[int]:
    """A few places from `a` to `b`, both included, unevenly spaced so that a period does not hide."""
    return {a + (b - a) * k // 12 for k in (0, 1, 2, 5, 7, 11, 12)}


def _bisect(right: int, wrong: int, bad_at: Callable[[int], bool]) -> tuple[int, int]:
    while abs(wrong - right) > 1:
        middle = (right + wrong) // 2
        if bad_at(middle):
            wrong = middle
        else:
            right = middle
    return right, wrong


def _remembering(bad: Callable[[Point], bool]) -> Callable[[Point], bool]:
    known: dict[tuple[tuple[str, int], ...], bool] = {}

    def asked(point: Point) -> bool:
        key = tuple(sorted(point.items()))
        if key not in known:
            known[key] = bad(point)
        return known[key]

    return asked
