"""The samples that a model can afford: small points are many, large points are few.

The cost of a run is counted in floating-point operations, not in seconds, so that the same model always gets the same
samples. Models that are cheap to run keep every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from math import prod

import torch
from torch.utils.flop_counter import FlopCounterMode

from fairway.judge.runtimes.eager import run_eager
from fairway.model.dims import Domain, Point
from fairway.model.sample import Sample
from fairway.model.subject import Subject

SAMPLES_FLOPS = {"quick": 1e11, "standard": 3e11, "deep": 3e12}
"""Operations that all samples of a level may take together, without the largest."""
LARGEST_FLOPS = {"quick": 2e11, "standard": 8e11, "deep": 3e12}
"""Operations that the one sample at the largest sizes may take."""
CHEAP_SHARE = 0.02
"""Part of the budget below which a sample stays at the sizes it was meant for."""

DEAR_FLOPS = 1e10
"""Operations of a run at the example from which on the model is tried out at the smallest sizes instead."""
KEPT_KINDS = ("normal", "zeros", "large", "log", "mixed")
"""Kinds of values of which one sample is kept, whatever it costs."""

Cost = Callable[[Sample], float]


def count_flops(subject: Subject) -> float:
    """Return the operations of a run per element of the domain's volume, counted at the example; 0 if it cannot be.

    Fake tensors are tried first, which compute nothing. A model that reads values is run in earnest.
    """
    tensors = subject.make(subject.example, 1, "normal")
    for attempt in (_run_faked, run_eager):
        counter = FlopCounterMode(display=False)
        try:
            with counter, torch.no_grad():
                attempt(subject, tensors)
        except Exception:
            continue
        return float(counter.get_total_flops()) / volume(subject.example)
    return 0.0


def _run_faked(subject: Subject, tensors: list[torch.Tensor]) -> None:
    from torch._subclasses import FakeTensorMode  # seen to work in torch 2.9–2.13; no public counterpart

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        run_eager(subject, [mode.from_tensor(tensor) for tensor in tensors])


def affordable_point(subject: Subject) -> Point:
    """Return where a model is tried out: at the example, or at the smallest declared sizes if a run there is dear."""
    if subject.study.flops_per_volume * volume(subject.example) <= DEAR_FLOPS or not subject.domain.declared:
        return subject.example
    return {dim.name: dim.sizes[0] for dim in subject.domain.dims}


def volume(point: Mapping[str, int]) -> int:
    return prod(max(size, 1) for size in point.values())


def fit_budget(
    domain: Domain, samples: Sequence[Sample], level: str, flops_per_volume: float, aimed: Set[Sample]
) -> Sequence[Sample]:
    """Return the samples that a level can afford, in their order.

    Edge values of dear samples move to the smallest sizes. Of ordinary samples at large sizes one is kept at the
    highest corner if it can be afforded; otherwise each dim goes to its end with the others at their lowest. Samples
    aimed at a branch or a guard stay where they are.
    """

    def cost(one: Sample) -> float:
        return 0.0 if one.data is not None else flops_per_volume * volume(one.sizes)

    budget, largest = SAMPLES_FLOPS.get(level, SAMPLES_FLOPS["deep"]), LARGEST_FLOPS.get(level, LARGEST_FLOPS["deep"])
    if sum(map(cost, samples)) <= budget:
        return samples
    low = {d.name: d.sizes[0] for d in domain.dims}
    limit = budget * CHEAP_SHARE
    small = _small_points(domain, cost, limit)
    kept_as_is = {one for one in samples if one in aimed and cost(one) <= largest / 4}
    moved = [one if one in kept_as_is else _move(one, small, cost, limit, i) for i, one in enumerate(samples)]
    dear = _dear_points(domain, low, cost, largest)
    return _within(list(dict.fromkeys([*dear, *moved])), cost, budget, {*dear, *kept_as_is})


def _small_points(domain: Domain, cost: Cost, limit: float) -> list[tuple[tuple[str, int], ...]]:
    """Return cheap points: the lowest, and those with one or two dims a few sizes higher."""
    low = {d.name: d.sizes[0] for d in domain.dims}
    steps = (1, 2, 4, 6, 10, 16)
    points = [low]
    for step in steps:
        points += [{**low, d.name: d.sizes[min(step, len(d.sizes) - 1)]} for d in domain.dims]
        points.append({d.name: d.sizes[min(step, len(d.sizes) - 1)] for d in domain.dims})
    unique = list(dict.fromkeys(tuple(point.items()) for point in points))
    return [point for point in unique if cost(Sample(point)) <= limit] or unique[:1]


def _move(one: Sample, small: Sequence[tuple[tuple[str, int], ...]], cost: Cost, limit: float, number: int) -> Sample:
    """Return a cheap sample as it is, and a dear one at one of the small points, in turn."""
    if one.data is not None or cost(one) <= limit:
        return one
    return replace(one, point=small[number % len(small)])


def _dear_points(domain: Domain, low: Mapping[str, int], cost: Cost, largest: float) -> list[Sample]:
    """Return the highest corner if it can be afforded, else each dim's end by itself; and one point in the middle."""
    high = Sample(tuple((d.name, d.sizes[-1]) for d in domain.dims), 4)
    middle = Sample(tuple((d.name, d.sizes[len(d.sizes) // 4]) for d in domain.dims), 2)
    ends = [Sample(tuple({**low, d.name: d.sizes[-1]}.items()), 10 + i) for i, d in enumerate(domain.dims)]
    chosen = ([high] if cost(high) <= largest else []) + [one for one in (*ends, middle) if cost(one) <= largest / 4]
    return chosen


def _within(samples: Sequence[Sample], cost: Cost, budget: float, dear: set[Sample]) -> list[Sample]:
    """Return the samples in turn of their kinds until the budget is used up, and those in `dear` besides."""
    by_kind: dict[object, list[Sample]] = {}
    for one in samples:
        by_kind.setdefault("dear" if one in dear else (one.flavour, one.touch is not None), []).append(one)
    kept = set(by_kind.pop("dear", []))
    left = budget
    rounds = max((len(items) for items in by_kind.values()), default=0)
    for number in range(rounds):
        for items in by_kind.values():
            kept_anyway = number == 0 and items[0].flavour in KEPT_KINDS
            if number < len(items) and (cost(items[number]) <= left or kept_anyway):
                left -= cost(items[number])
                kept.add(items[number])
    return [one for one in samples if one in kept]
