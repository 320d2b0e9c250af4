"""From a failing point to the smallest failing shape, and to the line between right and wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairway.subject.dims import Dim, Domain, Point


@dataclass(frozen=True)
class Boundary:
    """Along `dim`, with the other dims as in the smallest failing point: right at `right`, wrong at `wrong`."""

    dim: str
    right: int
    wrong: int

    def __str__(self) -> str:
        if self.wrong > self.right:
            return f"right up to {self.dim}={self.right}, wrong from {self.wrong}"
        return f"right from {self.dim}={self.right}, wrong at {self.wrong} and below"


@dataclass(frozen=True)
class Shrunk:
    point: dict[str, int]
    boundaries: tuple[Boundary, ...]
    fixed: tuple[str, ...]
    """Dims at which only the example's size is right."""


def shrink(domain: Domain, failing: Point, example: Point, bad: Callable[[Point], bool]) -> Shrunk:
    """The smallest failing point reachable one dim at a time, and the boundaries found on the way.

    Bisection assumes one change along a dim; the two sizes it ends at were both tested, so what is said of them is true
    even where that assumption is not.
    """
    point = dict(failing)
    boundaries: list[Boundary] = []
    for dim in domain.dims:
        edge = _smallest(dim, point, bad)
        if edge is not None:
            point[dim.name] = edge.wrong
            boundaries.append(edge)
        else:
            point[dim.name] = dim.sizes[0]
    for dim in domain.dims:
        above = _largest_wrong(dim, point, example, bad)
        if above is not None:
            boundaries.append(above)
    fixed = tuple(d.name for d in domain.dims if _only_example(d, example, bad))
    return Shrunk(point, tuple(boundaries), fixed)


def _smallest(dim: Dim, point: Point, bad: Callable[[Point], bool]) -> Boundary | None:
    """None where the dim's least size fails already."""
    sizes = dim.sizes
    if bad({**point, dim.name: sizes[0]}):
        return None
    right, wrong = 0, sizes.index(point[dim.name])
    right, wrong = _bisect(right, wrong, lambda i: bad({**point, dim.name: sizes[i]}))
    return Boundary(dim.name, sizes[right], sizes[wrong])


def _largest_wrong(dim: Dim, point: Point, example: Point, bad: Callable[[Point], bool]) -> Boundary | None:
    """The other side: where sizes below the example's fail and the example's does not."""
    sizes = dim.sizes
    at, home = sizes.index(point[dim.name]), sizes.index(example[dim.name])
    if at >= home or bad({**point, dim.name: sizes[home]}):
        return None
    right, wrong = _bisect(home, at, lambda i: bad({**point, dim.name: sizes[i]}))
    return Boundary(dim.name, sizes[right], sizes[wrong])


def _bisect(right: int, wrong: int, bad_at: Callable[[int], bool]) -> tuple[int, int]:
    while abs(wrong - right) > 1:
        middle = (right + wrong) // 2
        if bad_at(middle):
            wrong = middle
        else:
            right = middle
    return right, wrong


def _only_example(dim: Dim, example: Point, bad: Callable[[Point], bool]) -> bool:
    sizes = dim.sizes
    home = sizes.index(example[dim.name])
    others = [i for i in (home - 1, home + 1) if 0 <= i < len(sizes)]
    return bool(others) and not bad(example) and all(bad({**example, dim.name: sizes[i]}) for i in others)
