"""Check the capture's guards at every point of the declared domain.

torch.export follows one run of the model. Each question about a size that it answers on the way becomes a guard: the
captured program is valid only for sizes that give the same answer. A domain whose points all satisfy the guards is
covered, not only sampled. Points that break one are run first.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairway.judge.formulas import MOST_POINTS, CannotEvaluate, evaluate, make_grid, thin_out
from fairway.model.dims import Domain

EXCLUDED_POINTS_RUN = 12
"""Excluded points that are run. All of them, if there are no more."""

EXCLUDED_POINTS_OF_PIECES = 400
"""The same for a file of several captures, one of which may serve many points outside its own guards."""


@dataclass(frozen=True)
class SizeCoverage:
    """What is known about sizes: which guards the capture made, and at how many points of the domain they hold."""

    guards: tuple[str, ...] = ()
    """Python conditions on the dims' names."""
    points: int = 0
    """Points of the domain."""
    excluded: int = 0
    """Points that break a guard."""
    excluded_run: int = 0
    """How many of those were run."""
    complete: bool = False
    """Whether every guard was evaluated at every point."""
    sampled: str = ""
    """Why sizes are sampled rather than covered; empty if they are covered."""
    pieces: int = 0
    """Captures that the file holds, if several. At each point the guards of the one that serves it count."""

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
    domain: Domain, guards: Sequence[str], most: int = EXCLUDED_POINTS_RUN
) -> tuple[SizeCoverage, list[dict[str, int]]]:
    """Evaluate the guards over the domain; return what they cover, and up to `most` points that break one, to be run.

    A domain of more than ten million points is thinned out for the count. Each guard by itself is still evaluated at
    every size of the dims it names, unless those alone are too many.
    """
    whole = make_grid(domain)
    grid = thin_out(whole)
    complete = grid.points == whole.points
    broken = np.zeros(tuple(1 for _ in grid.names), bool)
    points: list[dict[str, int]] = []
    known: list[str] = []
    for guard in guards:
        tree = ast.parse(guard, mode="eval").body
        names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in whole.names]
        try:
            held = np.asarray(evaluate(tree, grid.arrays())) != 0
        except CannotEvaluate:
            complete = False
            continue
        known.append(guard)
        broken = broken | ~held
        own = make_grid(domain, names)
        if grid.points < whole.points and own.points <= MOST_POINTS:
            points += own.points_where(~(np.asarray(evaluate(tree, own.arrays())) != 0), most)[1]
    count, spread = grid.points_where(broken, most) if grid.names else (0, [])
    low = {d.name: d.sizes[0] for d in domain.dims}
    chosen = {tuple(sorted({**low, **point}.items())): {**low, **point} for point in (*spread, *points)}
    coverage = SizeCoverage(tuple(known), whole.points, max(count, len(chosen)), 0, complete)
    return coverage, list(chosen.values())[:most]
