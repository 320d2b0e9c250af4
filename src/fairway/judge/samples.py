"""Choose the samples of a level for one subject: the lattice, points that break a guard, aimed samples, and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import torch

from fairway.judge.budget import MAX_SAMPLES_FLOPS, compute_volume, fit_budget
from fairway.judge.evidence import FileFacts
from fairway.judge.graph_constants import find_sizes, find_thresholds
from fairway.judge.guards import MAX_EXCLUDED_POINTS_OF_PIECES, MAX_EXCLUDED_POINTS_RUN, check_guards
from fairway.judge.lattice import TINY_ELEMENTS, LatticeHints, Level, build_lattice
from fairway.model.dims import Point
from fairway.model.example import choose_example
from fairway.model.sample import Sample, Touch, make_sample
from fairway.model.subject import Subject
from fairway.model.values import Flavor

CONSTANT_FLAVORS: tuple[Flavor, ...] = ("zeros", "least", "most")
"""Flavors that give many inputs the same values for every seed."""

GUARD_SEED = 70
"""Seed of the first sample at a point that breaks a guard."""


def choose_other_example(subject: Subject) -> dict[str, int]:
    """Return a second example with all sizes different from the first, as far as the domain allows it."""
    return choose_example(subject.domain, subject.spec, {}, avoid=subject.example)


def choose_examples(subject: Subject, wrong_at: Mapping[str, Sequence[int]]) -> tuple[Point, Point]:
    """Return two points to export from: the example and another. Dims in `wrong_at` get two of those sizes.

    Large and odd sizes come first: a size computed from them is least likely to be 0 or 1, which exporters take for a
    constant.
    """
    first, second = dict(subject.example), choose_other_example(subject)
    fixed = {size.constant_value for item in subject.spec for size in item.shape}
    for name, sizes in wrong_at.items():
        ranked = sorted(sizes, key=lambda n: (n in fixed, n % 2 == 0, -n))
        first[name], second[name] = ranked[0], ranked[min(1, len(ranked) - 1)]
    return first, second


def enlarge_examples(subject: Subject, points: tuple[Point, Point], least: int) -> tuple[Point, Point]:
    """Return the points with sizes of at least `least` where the domain has them, all different."""
    taken = {size.constant_value for item in subject.spec for size in item.shape}
    enlarged: list[Point] = []
    for point in points:
        new = dict(point)
        for dim in subject.domain.dims:
            if new[dim.name] < least:
                legal = [n for n in dim.sizes[:_CANDIDATE_SIZES] if n >= least]
                free = [n for n in legal if n not in taken and n not in new.values()]
                new[dim.name] = (free or legal or [new[dim.name]])[0]
        taken |= set(new.values())
        enlarged.append(new)
    return enlarged[0], enlarged[1]


_CANDIDATE_SIZES = 64
"""Sizes of a dim from which a larger example is chosen."""


def list_lattice_samples(
    subject: Subject,
    level: Level,
    edges: Mapping[str, Sequence[int]] | None = None,
    path: str | None = None,
) -> list[Sample]:
    """Return the lattice over a subject's domain, with sizes and values from the constants of a file."""
    sizes: Mapping[str, Sequence[int]] = {}
    products: Sequence[Point] = ()
    numbers = list(subject.study.literals)
    if path is not None and level != "quick":
        sizes, products = find_sizes(path, subject.domain)
        # If a function makes the inputs, other legal values are unknown.
        has_integers = any("int" in item.dtype for item in subject.spec)
        numbers += find_thresholds(path, has_integers) if subject.ranges else []
    elements = sum(prod(item.sizes(subject.example)) for item in subject.spec)
    hints = LatticeHints(subject.given, edges or {}, sizes, dict.fromkeys(numbers), elements < TINY_ELEMENTS)
    other = choose_other_example(subject)
    samples = build_lattice(subject.domain, subject.example, other, level, subject.flavors, hints)
    samples += [make_sample({**subject.example, **point}, 28) for point in products]
    if level != "quick" and any(legal.has_nonfinite for legal in subject.ranges):
        samples += [replace(make_sample(subject.example, seed), touch=Touch("nonfinite", 0.0)) for seed in (60, 61, 62)]
    return list(dict.fromkeys([*samples, *subject.study.aimed]))


def list_samples(
    subject: Subject,
    path: str,
    level: Level,
    edges: Mapping[str, Sequence[int]],
    data: Sequence[list[torch.Tensor]],
    facts: FileFacts,
) -> list[Sample]:
    """Return the points that break a guard of the capture, then the lattice, then the user's own tensors.

    For a file of several captures, the points on both sides of each region's border come first too.
    """
    limit = _count_affordable_points(subject, level) if facts.pieces else MAX_EXCLUDED_POINTS_RUN
    broken = check_guards(subject.domain, facts.guards or (), limit)[1]
    guard_samples = [make_sample(point, GUARD_SEED + i) for i, point in enumerate((*broken, *facts.sides))]
    data_samples = [Sample((), data=i) for i in range(len(data))]
    samples = [*guard_samples, *list_lattice_samples(subject, level, edges, path), *data_samples]
    aimed = {*guard_samples, *subject.study.aimed, *data_samples}
    affordable = fit_budget(subject.domain, samples, level, subject.study.flops_per_volume, aimed)
    return samples if affordable is samples else _drop_equal_inputs(subject, affordable)


def _drop_equal_inputs(subject: Subject, samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples without those whose inputs another one has already, such as two of zeros at one point.

    They had different points before the budget moved them.
    """
    kept: list[Sample] = []
    drawn: dict[object, list[list[torch.Tensor]]] = {}
    for sample in samples:
        if sample.flavor in CONSTANT_FLAVORS and sample.touch is None:
            tensors = subject.make(sample.sizes, sample.seed, sample.flavor)
            others = drawn.setdefault((sample.point, sample.flavor), [])
            if any(all(map(torch.equal, tensors, other)) for other in others):
                continue
            others.append(tensors)
        kept.append(sample)
    return kept


def _count_affordable_points(subject: Subject, level: Level) -> int:
    """Return the number of points that a level can afford if each costs as much as the largest."""
    cost = subject.study.flops_per_volume * compute_volume({dim.name: dim.sizes[-1] for dim in subject.domain.dims})
    affordable = (
        int(MAX_SAMPLES_FLOPS.get(level, MAX_SAMPLES_FLOPS["deep"]) / 2 / cost)
        if cost
        else MAX_EXCLUDED_POINTS_OF_PIECES
    )
    return max(MAX_EXCLUDED_POINTS_RUN, min(MAX_EXCLUDED_POINTS_OF_PIECES, affordable))
