"""Check the capture's guards at every point of the declared domain.

torch.export follows one run of the model. Each condition on a size that it decides becomes a guard: the captured
program is valid only for sizes with the same answer. A domain whose points all satisfy the guards is covered, not only
sampled. Points that break a guard are run first.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairway.judge.formulas import MAX_GRID_POINTS, CannotEvaluate, evaluate, make_grid, thin_out
from fairway.model.dims import Domain

MAX_EXCLUDED_POINTS_RUN = 12
"""At most this many excluded points are run."""

MAX_EXCLUDED_POINTS_OF_PIECES = 400
"""The same limit for a file of several captures. One of them may serve many points outside its own guards."""


@dataclass(frozen=True)
class SizeCoverage:
    """The guards of a capture, and the number of points of the domain at which they hold."""

    guards: tuple[str, ...] = ()
    """Python conditions on the dims' names."""
    points: int = 0
    """Points of the domain."""
    excluded: int = 0
    """Points that break a guard."""
    excluded_run: int = 0
    """Points run that break a guard."""
    complete: bool = False
    """True if every guard was evaluated at every point."""
    sampled: str = ""
    """The reason for which sizes are sampled and not covered. Empty if they are covered."""
    pieces: int = 0
    """Captures in the file, if there are several. At each point the guards of the one that serves it count."""

    def __str__(self) -> str:
        if self.sampled:
            return f"sampled ({self.sampled})"
        at = "all" if self.complete else "some of the"
        whose = "the guards of their piece" if self.pieces else "the capture's guards"
        if not self.excluded:
            return f"{at} {self.points:,} points satisfy {whose}"
        return f"{whose} exclude {self.excluded:,} of {self.points:,} points; " + (
            f"{self.excluded_run} of {self.excluded:,} were run"
        )


def count_excluded(guards: Sequence[str], points: Sequence[dict[str, int]]) -> int:
    """Return how many of the points break a guard."""
    if not points:
        return 0
    columns = {name: np.asarray([point[name] for point in points]) for name in points[0]}
    broken = np.zeros(len(points), bool)
    for guard in guards:
        try:
            broken = broken | ~(np.asarray(evaluate(ast.parse(guard, mode="eval").body, columns)) != 0)
        except CannotEvaluate:
            continue
    return int(broken.sum())


def check_guards(
    domain: Domain, guards: Sequence[str], limit: int = MAX_EXCLUDED_POINTS_RUN
) -> tuple[SizeCoverage, list[dict[str, int]]]:
    """Evaluate the guards over the domain. Return their coverage, and up to `limit` points to run that break a guard.

    A domain of more than ten million points is thinned out for the count. Each guard alone is still evaluated at every
    size of the dims it names, unless these have too many points.
    """
    full_grid = make_grid(domain)
    grid = thin_out(full_grid)
    complete = grid.points == full_grid.points
    broken = np.zeros(tuple(1 for _ in grid.names), bool)
    points: list[dict[str, int]] = []
    known: list[str] = []
    for guard in guards:
        tree = ast.parse(guard, mode="eval").body
        names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in full_grid.names]
        try:
            is_satisfied = np.asarray(evaluate(tree, grid.arrays())) != 0
        except CannotEvaluate:
            complete = False
            continue
        known.append(guard)
        broken = broken | ~is_satisfied
        own_grid = make_grid(domain, names)
        if grid.points < full_grid.points and own_grid.points <= MAX_GRID_POINTS:
            points += own_grid.find_points(~(np.asarray(evaluate(tree, own_grid.arrays())) != 0), limit)[1]
    count, broken_points = grid.find_points(broken, limit) if grid.names else (0, [])
    low = {d.name: d.sizes[0] for d in domain.dims}
    chosen = {tuple(sorted({**low, **point}.items())): {**low, **point} for point in (*broken_points, *points)}
    coverage = SizeCoverage(tuple(known), full_grid.points, max(count, len(chosen)), 0, complete)
    return coverage, list(chosen.values())[:limit]
