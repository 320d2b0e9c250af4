"""The samples of a level for one subject: the lattice, points that break a guard, aimed samples, and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from fairway.judge.budget import SAMPLES_FLOPS, fit_budget, volume
from fairway.judge.evidence import FileFacts
from fairway.judge.graph_constants import sizes_spoken_of, thresholds_spoken_of
from fairway.judge.guards import EXCLUDED_POINTS_OF_PIECES, EXCLUDED_POINTS_RUN, check_guards
from fairway.judge.lattice import Level, lattice
from fairway.model.dims import Point
from fairway.model.example import choose_example
from fairway.model.sample import Sample, Touch, sample
from fairway.model.subject import Subject

GUARD_SEED = 70
"""Seed of the first sample at a point that breaks a guard."""


def other_example(subject: Subject) -> dict[str, int]:
    """A second example whose every size differs from the first's, where the domain allows it."""
    return choose_example(subject.domain, subject.spec, {}, avoid=subject.example)


def examples(subject: Subject, wrong_at: Mapping[str, Sequence[int]]) -> tuple[Point, Point]:
    """Two points to export from: the example and another; for dims in `wrong_at`, two of those sizes.

    Large and odd ones first: a size computed from them is least likely to be 0 or 1, which exporters take for always.
    """
    first, second = dict(subject.example), other_example(subject)
    fixed = {size.fixed for item in subject.spec for size in item.shape}
    for name, sizes in wrong_at.items():
        ranked = sorted(sizes, key=lambda n: (n in fixed, n % 2 == 0, -n))
        first[name], second[name] = ranked[0], ranked[min(1, len(ranked) - 1)]
    return first, second


def subject_lattice(
    subject: Subject,
    level: Level,
    edges: Mapping[str, Sequence[int]] | None = None,
    path: str | None = None,
) -> list[Sample]:
    """The lattice over a subject's domain, in the flavours it knows, with sizes and values that a file speaks of."""
    hints: Mapping[str, Sequence[int]] = {}
    products: Sequence[Point] = ()
    numbers = list(subject.study.literals)
    if path is not None and level != "quick":
        hints, products = sizes_spoken_of(path, subject.domain)
        # A function that makes inputs does not say which other values are legal.
        numbers += thresholds_spoken_of(path) if subject.ranges else []
    samples = lattice(
        subject.domain,
        subject.example,
        other_example(subject),
        level,
        edges,
        subject.flavours,
        subject.given,
        hints,
        dict.fromkeys(numbers),
    )
    samples += [sample({**subject.example, **point}, 28) for point in products]
    if level != "quick" and any(legal.nonfinite for legal in subject.ranges):
        samples += [replace(sample(subject.example, seed), touch=Touch("nonfinite", 0.0)) for seed in (60, 61, 62)]
    return list(dict.fromkeys([*samples, *subject.study.aimed]))


def every_sample(
    subject: Subject,
    path: str,
    level: Level,
    edges: Mapping[str, Sequence[int]],
    data: Sequence[list[torch.Tensor]],
    facts: FileFacts,
) -> list[Sample]:
    """Return the points that break a guard of the capture, then the lattice, then the user's own tensors.

    For a file of several captures the points on either side of each region come first too.
    """
    most = _affordable_points(subject, level) if facts.pieces else EXCLUDED_POINTS_RUN
    broken = check_guards(subject.domain, facts.guards or (), most)[1]
    first = [sample(point, GUARD_SEED + i) for i, point in enumerate((*broken, *facts.sides))]
    own = [Sample((), data=i) for i in range(len(data))]
    wanted = [*first, *subject_lattice(subject, level, edges, path), *own]
    aimed = {*first, *subject.study.aimed, *own}
    return list(fit_budget(subject.domain, wanted, level, subject.study.flops_per_volume, aimed))


def _affordable_points(subject: Subject, level: Level) -> int:
    """Return how many points a level can afford if each costs as much as the largest."""
    cost = subject.study.flops_per_volume * volume({dim.name: dim.sizes[-1] for dim in subject.domain.dims})
    affordable = int(SAMPLES_FLOPS.get(level, SAMPLES_FLOPS["deep"]) / 2 / cost) if cost else EXCLUDED_POINTS_OF_PIECES
    return max(EXCLUDED_POINTS_RUN, min(EXCLUDED_POINTS_OF_PIECES, affordable))
