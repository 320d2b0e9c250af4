"""What is known of the domain while captures are collected: where guards hold, and which capture was right where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from fairway.convert.pieces.piece_conditions import atoms
from fairway.convert.pieces.separate import PointPieces
from fairway.convert.pieces.size_map import Mask, Point, SizeMap, sparse
from fairway.judge.samples import subject_lattice
from fairway.model.subject import Subject

ALL_POINTS = 400
"""Points of a domain that are all run. Of a larger one so many are run outside the guards, drawn at random."""
MOST_CELLS = 64
POINTS_PER_CELL = 3
LATTICE_POINTS = 32
DEAREST_FLOPS = 2e9
"""Floating-point operations that a run of one capture at one point may take."""
TRIALS_FLOPS = 3e10
"""And those that all points of one capture may take together."""
EXACT_COVER = 4
"""Captures up to which the fewest are found exactly; beyond, the one that serves most is taken in turn."""


@dataclass(frozen=True)
class Shot:
    """One capture: where it was taken, where its file is, and under which conditions it is valid."""

    point: Point
    path: str
    guards: tuple[str, ...]


class Atlas:
    """The points that are run, and what came of it."""

    def __init__(self, subject: Subject, points: Sequence[Mapping[str, int]] = ()) -> None:
        """`points` are run in any case: a file of an earlier rung was wrong there."""
        self.subject = subject
        aimed = [*points, *(one.sizes for one in subject.study.aimed if one.data is None)]
        self.map = SizeMap(subject.domain, [subject.example, *aimed])
        self._asked = [place for place in map(self.map.index, points) if place is not None]
        self.shots: list[Shot] = []
        self.right: dict[int, list[bool | None]] = {}
        """For each point that was run, by its place on the map: for each capture, whether it is right there."""
        cost = subject.study.flops_per_volume * self.map.volumes()
        self._cost = cost
        self.affordable = cost <= max(DEAREST_FLOPS, float(cost.min()))
        self._base = self._first_points()

    def _first_points(self) -> list[int]:
        if self.map.complete and self.map.count <= ALL_POINTS:
            return [int(i) for i in np.flatnonzero(self.affordable)]
        samples = [*self.subject.study.aimed, *subject_lattice(self.subject, "standard")]
        places = [self.map.index(one.sizes) for one in samples if one.data is None and one.flavour == "normal"]
        known = dict.fromkeys(place for place in places if place is not None and self.affordable[place])
        return list(known)[:LATTICE_POINTS]

    @property
    def atoms(self) -> list[str]:
        """The comparisons of all guards."""
        return atoms(guard for shot in self.shots for guard in shot.guards)

    def cells(self) -> npt.NDArray[np.int64]:
        """Return the cell of each point. Sizes that are taken apart by every capture, 0 and 1, are apart here too."""
        below = [f"{name} <= 1" for name in self.map.grid.names]
        return self.map.cells([*below, *self.atoms])

    def points_to_run(self) -> list[int]:
        """Return the points of the lattice and of each cell, as many as can be afforded."""
        cells = self.cells()
        counts = np.bincount(cells)
        chosen = dict.fromkeys([*self._asked, *self._base])
        order = np.argsort(self._cost, kind="stable")
        order = order[self.affordable[order]]
        for cell in np.argsort(-counts, kind="stable")[:MOST_CELLS]:
            chosen.update(dict.fromkeys(int(i) for i in sparse(order[cells[order] == cell], POINTS_PER_CELL)))
        outside = np.flatnonzero(~self.covered() & self.affordable)
        # Drawn at random: what is spread evenly may miss every multiple of a number.
        drawn = np.random.default_rng(0).permutation(outside)[:ALL_POINTS] if self.shots else outside[:0]
        chosen.update(dict.fromkeys(map(int, drawn)))
        example = self.map.index(self.subject.example)
        left = TRIALS_FLOPS
        kept: list[int] = []
        for i in sorted(chosen, key=lambda i: (i != example, self._cost[i])):
            left -= float(self._cost[i])
            if left < 0 and kept:
                break
            kept.append(i)
        return kept

    def open_points(self) -> list[int]:
        """Return the points at which PyTorch runs and no capture is right, those of the largest cells first."""
        cells = self.cells()
        counts = np.bincount(cells)
        found = [i for i, answers in self.right.items() if None not in answers and True not in answers]
        return sorted(found, key=lambda i: (-int(counts[cells[i]]), *self._rank(self.map.point(i))))

    def _rank(self, point: Point) -> tuple[int, int, int]:
        """Order points by how good an example they are: exporters fix a size of 1 and merge equal sizes."""
        sizes = [size.at(point) for item in self.subject.spec for size in item.shape if size.names]
        fixed = {size.fixed for item in self.subject.spec for size in item.shape}
        small = sum(n < 2 for n in sizes)
        merged = sum(n in fixed for n in point.values()) + len(point) - len(set(point.values()))
        return small, merged, sum(point.values())

    def covered(self) -> Mask:
        """Return where all guards of some capture hold."""
        held = np.zeros(self.map.count, bool)
        for number in range(len(self.shots)):
            held = held | self.holding(number)
        return held

    def unseen_points(self) -> list[int]:
        """Return good examples in cells of which no guards say anything and not every point was run."""
        cells = self.cells()
        counts = np.bincount(cells)
        fresh = ~self.covered()
        fresh[list(self.right)] = False
        found = []
        for cell in np.unique(cells[fresh]):
            inside = np.flatnonzero((cells == cell) & ~self.covered() & self.affordable)
            if len(inside):
                best = min(sparse(inside, LATTICE_POINTS), key=lambda i: self._rank(self.map.point(i)))
                found.append((-int(counts[cell]), int(best)))
        return [place for _, place in sorted(found)]

    def holding(self, number: int) -> Mask:
        """Return where all guards of a capture hold."""
        return self.map.where_all(self.shots[number].guards)

    def sure(self, number: int) -> Mask:
        """Return where all guards of a capture hold, and that every varying size is at least 2, as torch assumes."""
        return self.holding(number) & self.map.where_all(self._assumed(self.shots[number]))

    def _assumed(self, shot: Shot) -> Iterator[str]:
        for item in self.subject.spec:
            for size in item.shape:
                if size.names and not any(guard.startswith(f"{size} == ") for guard in shot.guards):
                    yield f"{size} >= 2"

    def fixed(self, number: int) -> Mapping[str, int]:
        """Return the dims that a capture fixed."""
        shot = self.shots[number]
        return {name: size for name, size in shot.point.items() if f"{name} == {size}" in shot.guards}

    def served_by_each(self) -> list[Mask]:
        """Return for each capture where its guards hold, and the cells of which it was right at every point run."""
        cells = self.cells()
        masks = []
        for number in range(len(self.shots)):
            answers: dict[int, bool] = {}
            for i, row in self.right.items():
                if row[number] is not None:
                    cell = int(cells[i])
                    answers[cell] = answers.get(cell, True) and bool(row[number])
            good = [cell for cell, right in answers.items() if right]
            masks.append(self.holding(number) | np.isin(cells, good))
        return masks

    def fewest(self) -> tuple[int, ...]:
        """Return the fewest captures of which one is right at each point; of equals, those whose guards say most."""
        rows = [row for row in self.right.values() if True in row]
        served = [{i for i, row in enumerate(rows) if row[k]} for k in range(len(self.shots))]
        sure = [self.sure(k) for k in range(len(self.shots))]
        for count in range(1, EXACT_COVER + 1):
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

    def served(self, kept: Sequence[int]) -> list[PointPieces]:
        """Return the points that were run with the captures that serve them, by their guards if possible."""
        sure = [self.sure(k) for k in kept]
        found = []
        for i, row in self.right.items():
            right = [n for n, k in enumerate(kept) if row[k]]
            by_guards = [n for n in right if sure[n][i]]
            if right:
                found.append(PointPieces(self.map.point(i), frozenset(by_guards or right)))
        return found
