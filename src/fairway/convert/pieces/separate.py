"""The regions of a joined file: few and simple conditions that give each point a piece that serves it.

A decision tree over the comparisons of the guards, and over simple ones on single dims, is grown until every point has
its piece. Its paths are then shortened as far as the regions stay the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fairway.convert.pieces.piece import OTHERWISE
from fairway.convert.pieces.piece_conditions import join_terms, moduli, negate, read, size_names
from fairway.convert.pieces.size_map import Mask, Point, SizeMap
from fairway.judge.formulas import evaluate

Terms = tuple[tuple[str, ...], ...]
"""Conditions joined by `or` of conditions joined by `and`."""

MOST_MODULUS = 64
"""Remainders by larger numbers are no candidates, but for a remainder of 0."""
DEEPEST = 24
"""Questions in a row."""
CORRECTIONS = 12
"""How often points are added that an earlier tree gave to a piece whose guards they break."""
POINTS_ADDED = 16


@dataclass(frozen=True)
class PointPieces:
    """One point, and the pieces that may serve it."""

    point: Point
    pieces: frozenset[int]


@dataclass(frozen=True)
class Region:
    """Where one piece serves; no terms stand for every size that is left."""

    piece: int
    terms: Terms

    def __str__(self) -> str:
        return join_terms(self.terms) or OTHERWISE


class CannotSeparate(Exception):
    """No condition tells two points apart that need different pieces."""


def separate(
    size_map: SizeMap, atoms: Sequence[str], served: Sequence[PointPieces], sure: Sequence[Mask]
) -> list[Region]:
    """Return the regions in the order in which they are asked; the last has no condition.

    `sure` says for each piece where its guards hold. Those points are given to it or to another piece whose guards
    hold there, as far as what was run allows.
    """
    known = {tuple(one.point.items()): one for one in served}
    for _ in range(CORRECTIONS):
        tree = _DecisionTree(size_map, _candidates(size_map, atoms, list(known.values())), list(known.values()))
        owners = tree.owners()
        held = [mask & (owners == piece) for piece, mask in enumerate(sure)]
        lost: list[int] = np.flatnonzero(np.any(sure, axis=0) & ~np.any(held, axis=0)).tolist()
        fresh = [i for i in lost if tuple(size_map.point(i).items()) not in known]
        if not fresh:
            break
        for i in fresh[:: max(1, len(fresh) // POINTS_ADDED)]:
            point = size_map.point(i)
            fitting = frozenset(k for k, mask in enumerate(sure) if mask[i])
            known[tuple(point.items())] = PointPieces(point, fitting)
    return _shorten(size_map, tree.paths(), owners)


class _DecisionTree:
    """Points divided by one condition after another until the points of a leaf share a piece."""

    def __init__(self, size_map: SizeMap, candidates: Sequence[str], served: Sequence[PointPieces]) -> None:
        self._map = size_map
        self._pieces = sorted(frozenset().union(*(one.pieces for one in served)))
        self._allowed = np.asarray([[k in one.pieces for k in self._pieces] for one in served])
        self._columns = {c: _answers(c, [one.point for one in served]) for c in candidates}
        self._leaves = list(self._grow(np.arange(len(served)), ()))

    def _grow(self, rows: np.ndarray, path: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
        shared = self._allowed[rows].all(axis=0)
        if shared.any():
            # The piece that serves most elsewhere, so that few pieces get more than one path.
            yield self._pieces[int(np.argmax(shared * (1 + self._allowed.sum(axis=0))))], path
            return
        best = min(
            (c for c, column in self._columns.items() if 0 < column[rows].sum() < len(rows)),
            key=lambda c: self._cost(rows, self._columns[c]),
            default=None,
        )
        if best is None or len(path) >= DEEPEST:
            raise CannotSeparate
        held = self._columns[best][rows]
        yield from self._grow(rows[held], (*path, best))
        yield from self._grow(rows[~held], (*path, negate(best)))

    def _cost(self, rows: np.ndarray, column: np.ndarray) -> int:
        """Return how many points would not be served if each side had one piece. Of equals the first is taken."""
        sides = (rows[column[rows]], rows[~column[rows]])
        return sum(int((~self._allowed[side]).sum(axis=0).min()) for side in sides)

    def paths(self) -> dict[int, Terms]:
        """Return each piece's paths."""
        found: dict[int, Terms] = {}
        for piece, path in self._leaves:
            found[piece] = (*found.get(piece, ()), path)
        return found

    def owners(self) -> np.ndarray:
        """Return the piece of every point of the map."""
        owners = np.zeros(self._map.count, np.int64)
        for piece, path in self._leaves:
            owners[self._map.where_all(path)] = piece
        return owners


def _answers(condition: str, points: Sequence[Point]) -> np.ndarray:
    names = list(points[0])
    columns = {name: np.asarray([point[name] for point in points]) for name in names}
    return np.broadcast_to(np.asarray(evaluate(read(condition), columns)) != 0, (len(points),))


def _candidates(size_map: SizeMap, atoms: Sequence[str], served: Sequence[PointPieces]) -> list[str]:
    """Return conditions that may separate, the simplest first; of those with the same answers everywhere, one."""
    derived: list[str] = []
    divisors = moduli(atoms)
    for name in size_map.grid.names:
        sizes = sorted({one.point[name] for one in served})
        for divisor in divisors:
            rests = sorted({size % divisor for size in sizes}) if divisor <= MOST_MODULUS else [0]
            derived += [f"{name} % {divisor} == {rest}" for rest in rests]
        derived += [f"{name} == {size}" for size in sizes]
        derived += [f"{name} <= {size}" for size in sizes]
        derived += [f"{name} <= {size - 1}" for size in sizes]
    found: dict[bytes, str] = {}
    for text in dict.fromkeys([*atoms, *derived]):
        mask = size_map.find(text)
        if mask is None or mask.all() or not mask.any():
            continue
        key = min(mask.tobytes(), (~mask).tobytes())
        if key not in found or _rank(text) < _rank(found[key]):
            found[key] = text
    # A single size that no guard names separates anything, and says nothing of the sizes beside it.
    return sorted(
        found.values(),
        key=lambda text: (
            _is_inner_size(size_map, text) and text not in atoms,
            *_rank(text)[:2],
            text not in atoms,
            text,
        ),
    )


def _is_inner_size(size_map: SizeMap, text: str) -> bool:
    """Whether a condition is about one size that is neither the least nor the largest of its dim."""
    match read(text):
        case ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(value=int(size))]):
            sizes = size_map.grid.sizes[size_map.grid.names.index(name)]
            return size not in (sizes[0], sizes[-1])
    return False


def _rank(text: str) -> tuple[int, int, bool, str]:
    """Order conditions by how simple they are to read."""
    tree = read(text)
    minus = sum(isinstance(node, ast.USub) for node in ast.walk(tree))
    return len(set(size_names(text))), sum(1 for _ in ast.walk(tree)) + minus, "==" not in text, text


def _shorten(size_map: SizeMap, paths: dict[int, Terms], owners: np.ndarray) -> list[Region]:
    """Return the paths in order, the shortest first, without what the regions asked before make needless."""
    denied = {k: sum("!=" in one for path in paths[k] for one in path) for k in paths}
    order = sorted(paths, key=lambda k: (sum(map(len, paths[k])), denied[k], -int((owners == k).sum())))
    # The piece with the longest condition goes last, and needs none.
    left = np.ones(size_map.count, bool)
    regions: list[Region] = []
    for piece in order[:-1]:
        mine = owners == piece
        terms = [_drop_literals(size_map, list(term), left, mine) for term in paths[piece]]
        terms = _drop_terms(size_map, terms, left & mine)
        regions.append(Region(piece, tuple(map(tuple, terms))))
        left &= ~size_map.where_any(terms)
    return [*regions, Region(order[-1], ())]


def _drop_literals(size_map: SizeMap, term: list[str], left: Mask, mine: Mask) -> list[str]:
    for literal in list(term):
        rest = [one for one in term if one != literal]
        if rest and not (size_map.where_all(rest) & left & ~mine).any():
            term = rest
    return term


def _drop_terms(size_map: SizeMap, terms: list[list[str]], wanted: Mask) -> list[list[str]]:
    for term in list(terms):
        rest = [one for one in terms if one is not term]
        if rest and not (wanted & ~size_map.where_any(rest)).any():
            terms = rest
    return terms
