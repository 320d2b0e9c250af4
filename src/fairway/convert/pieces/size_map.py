"""The domain as arrays: where conditions hold, and the cells into which they cut it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fairway.convert.pieces.piece_conditions import read
from fairway.judge.formulas import CannotEvaluate, Grid, evaluate, make_grid, thin_out
from fairway.model.dims import Domain

Mask = npt.NDArray[np.bool_]
Point = dict[str, int]

MOST_MAPPED = 200_000
"""Points of the map. Of a larger domain a part is mapped; the judge counts over all of it."""


class SizeMap:
    """All points of a domain in one flat order, or a part of them that is spread over it."""

    def __init__(self, domain: Domain, points: Iterable[Mapping[str, int]] = ()) -> None:
        """`points` are on the map in any case."""
        whole = make_grid(domain)
        self.grid = _with_points(thin_out(whole, MOST_MAPPED), list(points))
        self.complete = self.grid.points == whole.points
        self.shape = tuple(map(len, self.grid.sizes))
        self.count = math.prod(self.shape)
        self._arrays = self.grid.arrays()
        self._known: dict[str, Mask | None] = {}

    def find(self, condition: str) -> Mask | None:
        """Return where a condition holds, or None if it cannot be evaluated."""
        if condition not in self._known:
            try:
                answer = np.asarray(evaluate(read(condition), self._arrays)) != 0
                self._known[condition] = np.broadcast_to(answer, self.shape).reshape(-1)
            except CannotEvaluate:
                self._known[condition] = None
        return self._known[condition]

    def where_all(self, conditions: Iterable[str]) -> Mask:
        """Return where every condition holds that can be evaluated."""
        held = np.ones(self.count, bool)
        for condition in conditions:
            mask = self.find(condition)
            held = held if mask is None else held & mask
        return held

    def where_any(self, terms: Sequence[Sequence[str]]) -> Mask:
        held = np.zeros(self.count, bool)
        for term in terms:
            held = held | self.where_all(term)
        return held

    def cells(self, conditions: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return for each point the number of its cell: points in one cell give every condition the same answer."""
        numbers = np.zeros(self.count, np.int64)
        for condition in conditions:
            mask = self.find(condition)
            if mask is not None and mask.any() and not mask.all():
                numbers = np.unique(2 * numbers + mask, return_inverse=True)[1]
        return numbers

    def point(self, index: int) -> Point:
        places = np.unravel_index(int(index), self.shape) if self.shape else ()
        return {n: int(s[p]) for n, s, p in zip(self.grid.names, self.grid.sizes, places, strict=True)}

    def index(self, point: Mapping[str, int]) -> int | None:
        """Return where a point is in the flat order, or None if the map leaves it out."""
        places = []
        for name, sizes in zip(self.grid.names, self.grid.sizes, strict=True):
            place = int(np.searchsorted(sizes, point[name]))
            if place >= len(sizes) or sizes[place] != point[name]:
                return None
            places.append(place)
        return int(np.ravel_multi_index(places, self.shape)) if places else 0

    def volumes(self) -> npt.NDArray[np.float64]:
        """Return for each point the product of its sizes: what a run there costs, up to a factor."""
        product = np.ones(tuple(1 for _ in self.shape))
        for axis in self._arrays.values():
            product = product * np.maximum(axis, 1)
        return np.broadcast_to(product, self.shape).reshape(-1)

    def borders(self, condition: str, most: int) -> list[Point]:
        """Return pairs of neighbors along each dim of which one satisfies a condition and the other does not."""
        mask = self.find(condition)
        if mask is None:
            return []
        held = mask.reshape(self.shape)
        found: dict[int, None] = {}
        for axis in range(len(self.shape)):
            ahead = np.take(held, range(1, self.shape[axis]), axis)
            changes = np.flatnonzero(ahead != np.take(held, range(self.shape[axis] - 1), axis))
            for change in changes[np.unique(np.linspace(0, len(changes) - 1, min(most, len(changes))).astype(int))]:
                shape = tuple(n - (i == axis) for i, n in enumerate(self.shape))
                here = list(np.unravel_index(change, shape))
                found[int(np.ravel_multi_index(here, self.shape))] = None
                here[axis] += 1
                found[int(np.ravel_multi_index(here, self.shape))] = None
        return [self.point(index) for index in found]


def _with_points(grid: Grid, points: Sequence[Mapping[str, int]]) -> Grid:
    wanted = ([point[name] for point in points] for name in grid.names)
    sizes = (np.union1d(axis, np.asarray(more, np.int64)) for axis, more in zip(grid.sizes, wanted, strict=True))
    return Grid(grid.names, tuple(sizes))


def sparse(indices: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Return up to `most` of the numbers, spread evenly, the first and the last among them."""
    if len(indices) <= most:
        return indices
    return indices[np.unique(np.linspace(0, len(indices) - 1, most).astype(np.int64))]
