"""The domain as arrays: where conditions hold, and the cells into which they divide it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fairway.convert.pieces.piece_conditions import parse_condition
from fairway.judge.formulas import CannotEvaluate, Grid, evaluate, make_grid, thin_out
from fairway.model.dims import Domain

Mask = npt.NDArray[np.bool_]
Point = dict[str, int]

MAX_MAP_POINTS = 200_000
"""Points of the map. Of a larger domain only a part is mapped; the judge counts over all of it."""


class SizeMap:
    """All points of a domain in one flat order, or a part of them spread over the domain."""

    def __init__(self, domain: Domain, points: Iterable[Mapping[str, int]] = ()) -> None:
        """`points` are always on the map."""
        full = make_grid(domain)
        self.grid = _add_points(thin_out(full, MAX_MAP_POINTS), list(points))
        self.complete = self.grid.points == full.points
        self.shape = tuple(map(len, self.grid.sizes))
        self.count = math.prod(self.shape)
        self._arrays = self.grid.arrays()
        self._known: dict[str, Mask | None] = {}

    def find_mask(self, condition: str) -> Mask | None:
        """Return where a condition holds, or None if it cannot be evaluated."""
        if condition not in self._known:
            try:
                answer = np.asarray(evaluate(parse_condition(condition), self._arrays)) != 0
                self._known[condition] = np.broadcast_to(answer, self.shape).reshape(-1)
            except CannotEvaluate:
                self._known[condition] = None
        return self._known[condition]

    def where_all(self, conditions: Iterable[str]) -> Mask:
        """Return where every condition holds, among those that can be evaluated."""
        held = np.ones(self.count, bool)
        for condition in conditions:
            mask = self.find_mask(condition)
            held = held if mask is None else held & mask
        return held

    def where_any(self, terms: Sequence[Sequence[str]]) -> Mask:
        held = np.zeros(self.count, bool)
        for term in terms:
            held = held | self.where_all(term)
        return held

    def number_cells(self, conditions: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the number of each point's cell. Each condition is the same at all points of a cell."""
        numbers = np.zeros(self.count, np.int64)
        for condition in conditions:
            mask = self.find_mask(condition)
            if mask is not None and mask.any() and not mask.all():
                numbers = np.unique(2 * numbers + mask, return_inverse=True)[1]
        return numbers

    def get_point(self, index: int) -> Point:
        places = np.unravel_index(int(index), self.shape) if self.shape else ()
        return {n: int(s[p]) for n, s, p in zip(self.grid.names, self.grid.sizes, places, strict=True)}

    def find_index(self, point: Mapping[str, int]) -> int | None:
        """Return a point's index in the flat order, or None if it is not on the map."""
        places = []
        for name, sizes in zip(self.grid.names, self.grid.sizes, strict=True):
            place = int(np.searchsorted(sizes, point[name]))
            if place >= len(sizes) or sizes[place] != point[name]:
                return None
            places.append(place)
        return int(np.ravel_multi_index(places, self.shape)) if places else 0

    def compute_volumes(self) -> npt.NDArray[np.float64]:
        """Return the product of each point's sizes: the cost of a run there, up to a factor."""
        product = np.ones(tuple(1 for _ in self.shape))
        for axis in self._arrays.values():
            product = product * np.maximum(axis, 1)
        return np.broadcast_to(product, self.shape).reshape(-1)

    def find_borders(self, condition: str, most: int) -> list[Point]:
        """Return pairs of neighbors along each dim for which a condition changes."""
        mask = self.find_mask(condition)
        if mask is None:
            return []
        held = mask.reshape(self.shape)
        indices: dict[int, None] = {}
        for axis in range(len(self.shape)):
            ahead = np.take(held, range(1, self.shape[axis]), axis)
            changes = np.flatnonzero(ahead != np.take(held, range(self.shape[axis] - 1), axis))
            for change in changes[np.unique(np.linspace(0, len(changes) - 1, min(most, len(changes))).astype(int))]:
                shape = tuple(n - (i == axis) for i, n in enumerate(self.shape))
                here = list(np.unravel_index(change, shape))
                indices[int(np.ravel_multi_index(here, self.shape))] = None
                here[axis] += 1
                indices[int(np.ravel_multi_index(here, self.shape))] = None
        return [self.get_point(index) for index in indices]


def _add_points(grid: Grid, points: Sequence[Mapping[str, int]]) -> Grid:
    added = ([point[name] for point in points] for name in grid.names)
    sizes = (np.union1d(axis, np.asarray(more, np.int64)) for axis, more in zip(grid.sizes, added, strict=True))
    return Grid(grid.names, tuple(sizes))


def thin_indices(indices: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Return up to `most` of the indices, evenly spread, with the first and the last among them."""
    if len(indices) <= most:
        return indices
    return indices[np.unique(np.linspace(0, len(indices) - 1, most).astype(np.int64))]
