"""Choose the samples that a model can afford: many small points, few large ones.

The cost of a run is counted in floating-point operations, not in seconds, so that the same model always gets the same
samples. Models that are cheap to run keep every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from math import prod

import torch
from torch.utils.flop_counter import FlopCounterMode

from fairway import torch_internals
from fairway.judge.runtimes.eager import run_eager
from fairway.model.dims import Domain, Point
from fairway.model.sample import Sample
from fairway.model.subject import Subject

MAX_SAMPLES_FLOPS = {"quick": 1e11, "standard": 3e11, "deep": 3e12}
"""Operations that all samples of a level may take together, except the largest sample."""
MAX_LARGEST_SAMPLE_FLOPS = {"quick": 2e11, "standard": 8e11, "deep": 3e12}
"""Operations that the one sample at the largest sizes may take."""
CHEAP_SHARE = 0.02
"""Samples that cost less than this share of the budget keep their sizes."""

EXPENSIVE_RUN_FLOPS = 1e10
"""If a run at the example takes more operations than this, the model is tried at the smallest sizes instead."""
KEPT_FLAVORS = ("normal", "zeros", "large", "log", "mixed")
"""Flavors of which one sample is kept, whatever it costs."""

CostFunction = Callable[[Sample], float]


def count_flops(subject: Subject) -> float:
    """Return the operations of a run per unit of volume at the example, or 0 if they cannot be counted.

    Fake tensors, which compute nothing, are tried first. A model that reads values is run with real tensors.
    """
    tensors = subject.make(subject.example, 1, "normal")
    for attempt in (_run_faked, run_eager):
        counter = FlopCounterMode(display=False)
        try:
            with counter, torch.no_grad():
                attempt(subject, tensors)
        except Exception:
            continue
        return float(counter.get_total_flops()) / compute_volume(subject.example)
    return 0.0


def _run_faked(subject: Subject, tensors: list[torch.Tensor]) -> None:
    with torch_internals.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        run_eager(subject, [mode.from_tensor(tensor) for tensor in tensors])


def choose_affordable_point(subject: Subject) -> Point:
    """Return the example, or the smallest declared sizes if a run at the example is expensive."""
    if (
        subject.study.flops_per_volume * compute_volume(subject.example) <= EXPENSIVE_RUN_FLOPS
        or not subject.domain.is_declared
    ):
        return subject.example
    return {dim.name: dim.sizes[0] for dim in subject.domain.dims}


def compute_volume(point: Mapping[str, int]) -> int:
    """Return the product of the sizes; a size of 0 counts as 1."""
    return prod(max(size, 1) for size in point.values())


def fit_budget(
    domain: Domain, samples: Sequence[Sample], level: str, flops_per_volume: float, aimed: Set[Sample]
) -> Sequence[Sample]:
    """Return the samples that a level can afford, in their order.

    Expensive samples move to small points. Samples at the highest corner and at each dim's largest size are added if
    the level can afford them. Samples aimed at a branch or a guard keep their sizes.
    """

    def cost(sample: Sample) -> float:
        return 0.0 if sample.data is not None else flops_per_volume * compute_volume(sample.sizes)

    budget, largest = (
        MAX_SAMPLES_FLOPS.get(level, MAX_SAMPLES_FLOPS["deep"]),
        MAX_LARGEST_SAMPLE_FLOPS.get(level, MAX_LARGEST_SAMPLE_FLOPS["deep"]),
    )
    if sum(map(cost, samples)) <= budget:
        return samples
    low = {d.name: d.sizes[0] for d in domain.dims}
    limit = budget * CHEAP_SHARE
    small = _list_small_points(domain, cost, limit)
    kept_as_is = {sample for sample in samples if sample in aimed and cost(sample) <= largest / 4}
    moved = [
        sample if sample in kept_as_is else _move_to_small_point(sample, small, cost, limit, i)
        for i, sample in enumerate(samples)
    ]
    expensive = _list_expensive_samples(domain, low, cost, largest)
    ordered = list(dict.fromkeys([*expensive, *moved]))
    return _keep_within_budget(ordered, cost, budget, {*expensive, *kept_as_is})


def _list_small_points(domain: Domain, cost: CostFunction, limit: float) -> list[tuple[tuple[str, int], ...]]:
    """Return cheap points: the lowest, and those with one dim or all dims a few sizes higher."""
    low = {d.name: d.sizes[0] for d in domain.dims}
    steps = (1, 2, 4, 6, 10, 16)
    points = [low]
    for step in steps:
        points += [{**low, d.name: d.sizes[min(step, len(d.sizes) - 1)]} for d in domain.dims]
        points.append({d.name: d.sizes[min(step, len(d.sizes) - 1)] for d in domain.dims})
    unique = list(dict.fromkeys(tuple(point.items()) for point in points))
    return [point for point in unique if cost(Sample(point)) <= limit] or unique[:1]


def _move_to_small_point(
    sample: Sample, small: Sequence[tuple[tuple[str, int], ...]], cost: CostFunction, limit: float, number: int
) -> Sample:
    """Return a cheap sample unchanged, and an expensive one at one of the small points, in turn."""
    if sample.data is not None or cost(sample) <= limit:
        return sample
    return replace(sample, point=small[number % len(small)])


def _list_expensive_samples(domain: Domain, low: Mapping[str, int], cost: CostFunction, largest: float) -> list[Sample]:
    """Return samples at the highest corner, at each dim's largest size, and in the middle, as far as affordable."""
    high = Sample(tuple((d.name, d.sizes[-1]) for d in domain.dims), 4)
    middle = Sample(tuple((d.name, d.sizes[len(d.sizes) // 4]) for d in domain.dims), 2)
    ends = [Sample(tuple({**low, d.name: d.sizes[-1]}.items()), 10 + i) for i, d in enumerate(domain.dims)]
    chosen = ([high] if cost(high) <= largest else []) + [
        sample for sample in (*ends, middle) if cost(sample) <= largest / 4
    ]
    return chosen


def _keep_within_budget(
    samples: Sequence[Sample], cost: CostFunction, budget: float, expensive: set[Sample]
) -> list[Sample]:
    """Return samples of each kind in turn until the budget is used up, and all the `expensive` ones."""
    by_kind: dict[object, list[Sample]] = {}
    for sample in samples:
        by_kind.setdefault(
            "expensive" if sample in expensive else (sample.flavor, sample.touch is not None), []
        ).append(sample)
    kept = set(by_kind.pop("expensive", []))
    left = budget
    rounds = max((len(items) for items in by_kind.values()), default=0)
    for number in range(rounds):
        for items in by_kind.values():
            kept_anyway = number == 0 and items[0].flavor in KEPT_FLAVORS
            if number < len(items) and (cost(items[number]) <= left or kept_anyway):
                left -= cost(items[number])
                kept.add(items[number])
    return [sample for sample in samples if sample in kept]
