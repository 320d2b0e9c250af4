"""Find the smallest failing shape, and the boundary between right and wrong sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairway.model.dims import Dim, Domain, Point


@dataclass(frozen=True)
class Boundary:
    """Adjacent sizes of `dim`, one right and one wrong, with the other dims as in the example."""

    dim: str
    right: int
    wrong: int
    is_clean: bool = True
    """True if every size tried on either side agrees. Some defects come and go with the size."""
    wrong_at: tuple[int, ...] = ()
    """Wrong sizes on the far side."""

    def __str__(self) -> str:
        if not self.is_clean:
            return f"right at {self.dim}={self.right}, wrong at {self.wrong} and elsewhere"
        if self.wrong > self.right:
            return f"right up to {self.dim}={self.right}, wrong from {self.wrong}"
        return f"right down to {self.dim}={self.right}, wrong at {self.wrong}"


@dataclass(frozen=True)
class ShrunkFailure:
    """The smallest failing point, and the boundaries around the example."""

    point: dict[str, int]
    boundaries: tuple[Boundary, ...]
    fixed: tuple[str, ...]
    """Dims at which only the example's size is right."""

    @property
    def wrong_at(self) -> dict[str, tuple[int, ...]]:
        """By dim, the wrong sizes above the example. Dims with a single right size are left out."""
        above = [edge for edge in self.boundaries if edge.wrong > edge.right]
        return {edge.dim: edge.wrong_at for edge in above if edge.dim not in self.fixed}


def shrink_failure(domain: Domain, failing: Point, example: Point, is_wrong: Callable[[Point], bool]) -> ShrunkFailure:
    """Return the smallest failing point that can be reached one dim at a time, and the boundaries around the example.

    Bisection assumes a single change along a dim. The two sizes it ends at were both tested, so the result is true even
    if there are more changes.
    """
    is_wrong = _memoize(is_wrong)
    point = dict(failing)
    for dim in domain.dims:
        point[dim.name] = _find_smallest(dim, point, is_wrong)
    if is_wrong(example):
        return ShrunkFailure(point, (), ())
    boundaries: list[Boundary] = []
    fixed: list[str] = []
    for dim in domain.dims:
        ends = [e for e in (dim.sizes[-1], dim.sizes[0]) if e != example[dim.name]]
        edges = [edge for end in ends if (edge := _find_boundary(dim, end, example, is_wrong)) is not None]
        boundaries += edges
        if ends and len(edges) == len(ends) and all(edge.right == example[dim.name] for edge in edges):
            fixed.append(dim.name)
    return ShrunkFailure(point, tuple(boundaries), tuple(fixed))


def _find_smallest(dim: Dim, point: Point, is_wrong: Callable[[Point], bool]) -> int:
    sizes = dim.sizes
    if is_wrong({**point, dim.name: sizes[0]}):
        return sizes[0]
    _, wrong_index = _bisect(0, sizes.index(point[dim.name]), lambda i: is_wrong({**point, dim.name: sizes[i]}))
    return sizes[wrong_index]


def _find_boundary(dim: Dim, end: int, example: Point, is_wrong: Callable[[Point], bool]) -> Boundary | None:
    """Return the boundary between the example's size and `end`, or None if `end` is right."""
    if not is_wrong({**example, dim.name: end}):
        return None
    sizes = dim.sizes

    def is_wrong_at(index: int) -> bool:
        return is_wrong({**example, dim.name: sizes[index]})

    last = sizes.index(end)
    right, wrong = _bisect(sizes.index(example[dim.name]), last, is_wrong_at)
    first = 0 if end == sizes[-1] else len(sizes) - 1
    far = _spread_indices(wrong, last)
    wrong_at = tuple(sizes[i] for i in sorted(far) if is_wrong_at(i))
    is_clean = len(wrong_at) == len(far) and not any(is_wrong_at(i) for i in _spread_indices(first, right))
    return Boundary(dim.name, sizes[right], sizes[wrong], is_clean, wrong_at)


def _spread_indices(a: int, b: int) -> set[int]:
    """Return a few indices from `a` to `b`, both included, unevenly spaced so that periodic defects show."""
    return {a + (b - a) * k // 12 for k in (0, 1, 2, 5, 7, 11, 12)}


def _bisect(right: int, wrong: int, is_wrong_at: Callable[[int], bool]) -> tuple[int, int]:
    while abs(wrong - right) > 1:
        middle = (right + wrong) // 2
        if is_wrong_at(middle):
            wrong = middle
        else:
            right = middle
    return right, wrong


def _memoize(is_wrong: Callable[[Point], bool]) -> Callable[[Point], bool]:
    known: dict[tuple[tuple[str, int], ...], bool] = {}

    def is_wrong_cached(point: Point) -> bool:
        key = tuple(sorted(point.items()))
        if key not in known:
            known[key] = is_wrong(point)
        return known[key]

    return is_wrong_cached
