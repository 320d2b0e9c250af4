"""Maps the domain while captures are collected: where guards hold, and where each capture is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from fairway.convert.pieces.piece_conditions import find_comparisons
from fairway.convert.pieces.separate import PointPieces
from fairway.convert.pieces.size_map import Mask, Point, SizeMap, thin_indices
from fairway.judge.samples import list_lattice_samples
from fairway.model.subject import Subject

MAX_EXHAUSTIVE_POINTS = 400
"""Domains of up to this many points are run completely. In a larger one, this many random points outside the guards."""
MAX_CELLS = 64
POINTS_PER_CELL = 3
MAX_LATTICE_POINTS = 32
MAX_RUN_FLOPS = 2e9
"""Floating-point operations of one run of a capture at one point."""
MAX_CAPTURE_FLOPS = 3e10
"""Floating-point operations of one capture at all points together."""
MAX_EXACT_COVER_SHOTS = 4
"""Up to this many captures the fewest are found exactly. Beyond, the one that serves most is taken repeatedly."""


@dataclass(frozen=True)
class Shot:
    """One capture: the point it was made at, its file, and the conditions under which it is valid."""

    point: Point
    path: str
    guards: tuple[str, ...]


class Atlas:
    """The points at which captures are run, and the results."""

    def __init__(self, subject: Subject, points: Sequence[Mapping[str, int]] = ()) -> None:
        """`points` are always run: a file of an earlier rung was wrong there."""
        self.subject = subject
        aimed = [*points, *(sample.sizes for sample in subject.study.aimed if sample.data is None)]
        self.map = SizeMap(subject.domain, [subject.example, *aimed])
        self._requested = [place for place in map(self.map.find_index, points) if place is not None]
        self.shots: list[Shot] = []
        self.right: dict[int, list[bool | None]] = {}
        """By the index of each point that was run: for each capture, true if it is right there."""
        cost = subject.study.flops_per_volume * self.map.compute_volumes()
        self._cost = cost
        self.affordable = cost <= max(MAX_RUN_FLOPS, float(cost.min()))
        self._base = self._choose_first_points()

    def _choose_first_points(self) -> list[int]:
        if self.map.complete and self.map.count <= MAX_EXHAUSTIVE_POINTS:
            return [int(i) for i in np.flatnonzero(self.affordable)]
        samples = [*self.subject.study.aimed, *list_lattice_samples(self.subject, "standard")]
        places = [self.map.find_index(s.sizes) for s in samples if s.data is None and s.flavor == "normal"]
        known = dict.fromkeys(place for place in places if place is not None and self.affordable[place])
        return list(known)[:MAX_LATTICE_POINTS]

    @property
    def atoms(self) -> list[str]:
        """The comparisons in all guards."""
        return find_comparisons(guard for shot in self.shots for guard in shot.guards)

    def cells(self) -> npt.NDArray[np.int64]:
        """Return the cell of each point. Sizes of 0 and 1 have separate cells, since captures treat them specially."""
        below = [f"{name} <= 1" for name in self.map.grid.names]
        return self.map.number_cells([*below, *self.atoms])

    def choose_points(self) -> list[int]:
        """Return points of the lattice and of each cell, as many as can be run in reasonable time."""
        cells = self.cells()
        counts = np.bincount(cells)
        chosen = dict.fromkeys([*self._requested, *self._base])
        order = np.argsort(self._cost, kind="stable")
        order = order[self.affordable[order]]
        for cell in np.argsort(-counts, kind="stable")[:MAX_CELLS]:
            chosen.update(dict.fromkeys(int(i) for i in thin_indices(order[cells[order] == cell], POINTS_PER_CELL)))
        outside = np.flatnonzero(~self.find_covered() & self.affordable)
        # Random, because evenly spread points may miss every multiple of a number.
        drawn = np.random.default_rng(0).permutation(outside)[:MAX_EXHAUSTIVE_POINTS] if self.shots else outside[:0]
        chosen.update(dict.fromkeys(map(int, drawn)))
        example = self.map.find_index(self.subject.example)
        left = MAX_CAPTURE_FLOPS
        affordable: list[int] = []
        for i in sorted(chosen, key=lambda i: (i != example, self._cost[i])):
            left -= float(self._cost[i])
            if left < 0 and affordable:
                break
            affordable.append(i)
        return affordable

    def find_open_points(self) -> list[int]:
        """Return the points at which PyTorch runs and no capture is right, largest cells first."""
        cells = self.cells()
        counts = np.bincount(cells)
        points = [i for i, row in self.right.items() if None not in row and True not in row]
        return sorted(points, key=lambda i: (-int(counts[cells[i]]), *self._rank(self.map.get_point(i))))

    def _rank(self, point: Point) -> tuple[int, int, int]:
        """Return a sort key that puts good examples first: exporters fix a size of 1 and merge equal sizes."""
        sizes = [size.at(point) for item in self.subject.spec for size in item.shape if size.names]
        fixed = {size.constant_value for item in self.subject.spec for size in item.shape}
        small = sum(n < 2 for n in sizes)
        merged = sum(n in fixed for n in point.values()) + len(point) - len(set(point.values()))
        return small, merged, sum(point.values())

    def find_covered(self) -> Mask:
        """Return where all guards of any capture hold."""
        held = np.zeros(self.map.count, bool)
        for number in range(len(self.shots)):
            held = held | self.find_valid(number)
        return held

    def find_unseen_points(self) -> list[int]:
        """Return one good example for each cell with points that no guards cover and that were not run."""
        cells = self.cells()
        counts = np.bincount(cells)
        unseen = ~self.find_covered()
        unseen[list(self.right)] = False
        examples = []
        for cell in np.unique(cells[unseen]):
            inside = np.flatnonzero((cells == cell) & ~self.find_covered() & self.affordable)
            if len(inside):
                best = min(thin_indices(inside, MAX_LATTICE_POINTS), key=lambda i: self._rank(self.map.get_point(i)))
                examples.append((-int(counts[cell]), int(best)))
        return [place for _, place in sorted(examples)]

    def find_valid(self, number: int) -> Mask:
        """Return where all guards of a capture hold."""
        return self.map.where_all(self.shots[number].guards)

    def find_sure(self, number: int) -> Mask:
        """Return where all guards of a capture hold and every varying size is at least 2, as torch assumes."""
        return self.find_valid(number) & self.map.where_all(self._list_assumptions(self.shots[number]))

    def _list_assumptions(self, shot: Shot) -> Iterator[str]:
        for item in self.subject.spec:
            for size in item.shape:
                if size.names and not any(guard.startswith(f"{size} == ") for guard in shot.guards):
                    yield f"{size} >= 2"

    def list_fixed_dims(self, number: int) -> Mapping[str, int]:
        """Return the dims that a capture fixed."""
        shot = self.shots[number]
        return {name: size for name, size in shot.point.items() if f"{name} == {size}" in shot.guards}

    def find_served_by_each(self) -> list[Mask]:
        """Return for each capture where its guards hold, and the cells in which it was right at every point run."""
        cells = self.cells()
        masks = []
        for number in range(len(self.shots)):
            is_right: dict[int, bool] = {}
            for i, row in self.right.items():
                if row[number] is not None:
                    cell = int(cells[i])
                    is_right[cell] = is_right.get(cell, True) and bool(row[number])
            good = [cell for cell, right in is_right.items() if right]
            masks.append(self.find_valid(number) | np.isin(cells, good))
        return masks

    def choose_fewest(self) -> tuple[int, ...]:
        """Return the fewest captures of which one is right at each point; of equals, those whose guards cover most."""
        rows = [row for row in self.right.values() if True in row]
        served = [{i for i, row in enumerate(rows) if row[k]} for k in range(len(self.shots))]
        sure = [self.find_sure(k) for k in range(len(self.shots))]
        for count in range(1, MAX_EXACT_COVER_SHOTS + 1):
            every = combinations(range(len(served)), count)
            full = [chosen for chosen in every if len(set().union(*(served[k] for k in chosen))) == len(rows)]
            if full:
                return max(full, key=lambda c: int(np.any([sure[k] for k in c], axis=0).sum()))
        chosen: list[int] = []
        left = set(range(len(rows)))
        while left:
            best = max(range(len(served)), key=lambda k: (len(served[k] & left), int(sure[k].sum())))
            chosen.append(best)
            left -= served[best]
        return tuple(sorted(chosen))

    def assign_points(self, kept: Sequence[int]) -> list[PointPieces]:
        """Return each point that was run with the captures that serve it, by their guards if possible."""
        sure = [self.find_sure(k) for k in kept]
        served = []
        for i, row in self.right.items():
            right = [n for n, k in enumerate(kept) if row[k]]
            by_guards = [n for n in right if sure[n][i]]
            if right:
                served.append(PointPieces(self.map.get_point(i), frozenset(by_guards or right)))
        return served
