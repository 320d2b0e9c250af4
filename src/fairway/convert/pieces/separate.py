"""Finds the regions of a joined file: few and simple conditions that give each point a piece that serves it.

A decision tree over the comparisons in the guards, and over simple ones on single dims, grows until every point has its
piece. Then its paths are shortened as long as the regions stay the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fairway.convert.pieces.piece import OTHERWISE
from fairway.convert.pieces.piece_conditions import (
    find_divisors,
    find_size_names,
    join_terms,
    negate_condition,
    parse_condition,
)
from fairway.convert.pieces.size_map import Mask, Point, SizeMap
from fairway.judge.formulas import evaluate

Terms = tuple[tuple[str, ...], ...]
"""Conditions joined by `or` of conditions joined by `and`."""

MAX_MODULUS = 64
"""For larger divisors, only a remainder of 0 is considered."""
MAX_TREE_DEPTH = 24
"""Conditions on one path of the tree."""
MAX_CORRECTIONS = 12
"""Rounds in which points are added that an earlier tree gave to a piece whose guards they violate."""
MAX_POINTS_ADDED = 16


@dataclass(frozen=True)
class PointPieces:
    """One point, and the pieces that may serve it."""

    point: Point
    pieces: frozenset[int]


@dataclass(frozen=True)
class Region:
    """The sizes that one piece serves. Without terms it is every remaining size."""

    piece: int
    terms: Terms

    def __str__(self) -> str:
        return join_terms(self.terms) or OTHERWISE


class CannotSeparate(Exception):
    """No condition separates two points that need different pieces."""


def find_regions(
    size_map: SizeMap, atoms: Sequence[str], served: Sequence[PointPieces], sure: Sequence[Mask]
) -> list[Region]:
    """Return the regions in the order of evaluation. The last has no condition.

    `sure` has for each piece the points at which its guards hold. These points go to it, or to another piece whose
    guards hold there, as far as the results allow.
    """
    known = {tuple(item.point.items()): item for item in served}
    for _ in range(MAX_CORRECTIONS):
        tree = _DecisionTree(size_map, _collect_conditions(size_map, atoms, list(known.values())), list(known.values()))
        owners = tree.owners()
        held = [mask & (owners == piece) for piece, mask in enumerate(sure)]
        lost: list[int] = np.flatnonzero(np.any(sure, axis=0) & ~np.any(held, axis=0)).tolist()
        fresh = [i for i in lost if tuple(size_map.get_point(i).items()) not in known]
        if not fresh:
            break
        for i in fresh[:: max(1, len(fresh) // MAX_POINTS_ADDED)]:
            point = size_map.get_point(i)
            fitting = frozenset(k for k, mask in enumerate(sure) if mask[i])
            known[tuple(point.items())] = PointPieces(point, fitting)
    return _shorten(size_map, tree.paths(), owners)


class _DecisionTree:
    """Points divided by one condition after another until the points of a leaf share a piece."""

    def __init__(self, size_map: SizeMap, candidates: Sequence[str], served: Sequence[PointPieces]) -> None:
        self._map = size_map
        self._pieces = sorted(frozenset().union(*(item.pieces for item in served)))
        self._allowed = np.asarray([[k in item.pieces for k in self._pieces] for item in served])
        self._columns = {c: _evaluate_at(c, [item.point for item in served]) for c in candidates}
        self._leaves = list(self._grow(np.arange(len(served)), ()))

    def _grow(self, rows: np.ndarray, path: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
        shared = self._allowed[rows].all(axis=0)
        if shared.any():
            # The piece that serves most other points, so that few pieces get more than one path.
            yield self._pieces[int(np.argmax(shared * (1 + self._allowed.sum(axis=0))))], path
            return
        best = min(
            (c for c, column in self._columns.items() if 0 < column[rows].sum() < len(rows)),
            key=lambda c: self._cost(rows, self._columns[c]),
            default=None,
        )
        if best is None or len(path) >= MAX_TREE_DEPTH:
            raise CannotSeparate
        held = self._columns[best][rows]
        yield from self._grow(rows[held], (*path, best))
        yield from self._grow(rows[~held], (*path, negate_condition(best)))

    def _cost(self, rows: np.ndarray, column: np.ndarray) -> int:
        """Return the number of points that would not be served if each side had one piece."""
        sides = (rows[column[rows]], rows[~column[rows]])
        return sum(int((~self._allowed[side]).sum(axis=0).min()) for side in sides)

    def paths(self) -> dict[int, Terms]:
        """Return each piece's paths."""
        paths: dict[int, Terms] = {}
        for piece, path in self._leaves:
            paths[piece] = (*paths.get(piece, ()), path)
        return paths

    def owners(self) -> np.ndarray:
        """Return the piece of every point of the map."""
        owners = np.zeros(self._map.count, np.int64)
        for piece, path in self._leaves:
            owners[self._map.where_all(path)] = piece
        return owners


def _evaluate_at(condition: str, points: Sequence[Point]) -> np.ndarray:
    names = list(points[0])
    columns = {name: np.asarray([point[name] for point in points]) for name in names}
    return np.broadcast_to(np.asarray(evaluate(parse_condition(condition), columns)) != 0, (len(points),))


def _collect_conditions(size_map: SizeMap, atoms: Sequence[str], served: Sequence[PointPieces]) -> list[str]:
    """Return conditions that may separate points, simplest first; of those with equal results everywhere, one."""
    derived: list[str] = []
    divisors = find_divisors(atoms)
    for name in size_map.grid.names:
        sizes = sorted({item.point[name] for item in served})
        for divisor in divisors:
            rests = sorted({size % divisor for size in sizes}) if divisor <= MAX_MODULUS else [0]
            derived += [f"{name} % {divisor} == {rest}" for rest in rests]
        derived += [f"{name} == {size}" for size in sizes]
        derived += [f"{name} <= {size}" for size in sizes]
        derived += [f"{name} <= {size - 1}" for size in sizes]
    simplest: dict[bytes, str] = {}
    for text in dict.fromkeys([*atoms, *derived]):
        mask = size_map.find_mask(text)
        if mask is None or mask.all() or not mask.any():
            continue
        key = min(mask.tobytes(), (~mask).tobytes())
        if key not in simplest or _rank_condition(text) < _rank_condition(simplest[key]):
            simplest[key] = text
    # Single sizes that no guard names go last: they can separate any points, but reveal nothing about other sizes.
    return sorted(
        simplest.values(),
        key=lambda text: (
            _is_inner_size(size_map, text) and text not in atoms,
            *_rank_condition(text)[:2],
            text not in atoms,
            text,
        ),
    )


def _is_inner_size(size_map: SizeMap, text: str) -> bool:
    """Return whether a condition is about one size that is neither the smallest nor the largest of its dim."""
    match parse_condition(text):
        case ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(value=int(size))]):
            sizes = size_map.grid.sizes[size_map.grid.names.index(name)]
            return size not in (sizes[0], sizes[-1])
    return False


def _rank_condition(text: str) -> tuple[int, int, bool, str]:
    """Return a sort key that puts conditions first that are easy to read."""
    tree = parse_condition(text)
    minus = sum(isinstance(node, ast.USub) for node in ast.walk(tree))
    return len(set(find_size_names(text))), sum(1 for _ in ast.walk(tree)) + minus, "==" not in text, text


def _shorten(size_map: SizeMap, paths: dict[int, Terms], owners: np.ndarray) -> list[Region]:
    """Return the regions, shortest paths first, without conditions that the earlier regions make unnecessary."""
    negations = {k: sum("!=" in literal for path in paths[k] for literal in path) for k in paths}
    order = sorted(paths, key=lambda k: (sum(map(len, paths[k])), negations[k], -int((owners == k).sum())))
    # The piece with the longest condition is the last, which needs no condition.
    left = np.ones(size_map.count, bool)
    regions: list[Region] = []
    for piece in order[:-1]:
        own = owners == piece
        terms = [_drop_literals(size_map, list(term), left, own) for term in paths[piece]]
        terms = _drop_terms(size_map, terms, left & own)
        regions.append(Region(piece, tuple(map(tuple, terms))))
        left &= ~size_map.where_any(terms)
    return [*regions, Region(order[-1], ())]


def _drop_literals(size_map: SizeMap, term: list[str], left: Mask, own: Mask) -> list[str]:
    for literal in list(term):
        rest = [other for other in term if other != literal]
        if rest and not (size_map.where_all(rest) & left & ~own).any():
            term = rest
    return term


def _drop_terms(size_map: SizeMap, terms: list[list[str]], required: Mask) -> list[list[str]]:
    for term in list(terms):
        rest = [other for other in terms if other is not term]
        if rest and not (required & ~size_map.where_any(rest)).any():
            terms = rest
    return terms
