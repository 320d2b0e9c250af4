"""Where to test: points over the declared dims, values by seed and flavour.

A level is a way of choosing samples. Bounds come first, since that is where exporters are wrong most often; then the
neighbours of the bounds, primes between them, the example, and pairs of extremes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal

from fairway.model.dims import Dim, Domain, Point
from fairway.model.sample import Sample, Touch, sample
from fairway.model.values import FLAVOURS, Flavour

Level = Literal["none", "quick", "standard", "deep"]
LEVELS: tuple[Level, ...] = ("none", "quick", "standard", "deep")
"""At `none` a file is made and not looked at."""

WALK = 16
"""Steps of the walk through the smallest sizes."""

SWEEP, SMALLEST = 256, 4
"""At deep: sizes tried along each dim, and how many of the other dims' smallest sizes keep it company."""

COUNTED = 256
"""At deep: legal values that are counted through at the lowest corner. Vocabularies can be larger by far."""

SWEPT: tuple[Flavour, ...] = ("normal", "mixed", "normal", "least", "normal", "mixed", "most")

KINDS_OF_VALUES: dict[Flavour, int] = {"log": 12, "halves": 8, "equal": 6}
"""Samples of each kind of values that is drawn on purpose."""
KINDS_SEED = 50

_STRIDES = (5, 7, 3, 11)
"""Odd, so that each visits all sixteen places in an order of its own."""


def probes(dim: Dim) -> list[int]:
    """Sizes of one dim worth testing: the bounds, their neighbours, and primes at growing distances between them."""
    sizes = dim.sizes
    found = [sizes[0], sizes[-1], sizes[min(1, len(sizes) - 1)], sizes[-min(2, len(sizes))]]
    step = max(2, sizes[0])
    while step < sizes[-1]:
        near = next((n for n in sizes[(step - sizes[0]) // dim.multiple :] if _prime(n // dim.multiple)), None)
        if near is not None:
            found.append(near)
        step *= 4
    return list(dict.fromkeys(found))


def lattice(
    domain: Domain,
    example: Point,
    other: Point,
    level: Level,
    edges: Mapping[str, Iterable[int]] | None = None,
    flavours: Sequence[Flavour] = FLAVOURS,
    given: Point | None = None,
    hints: Mapping[str, Iterable[int]] | None = None,
    thresholds: Iterable[float] = (),
) -> list[Sample]:
    """The samples of a level, cheapest to be wrong first.

    `edges` are sizes the capture itself spoke of, `hints` and `thresholds` sizes and values the file speaks of; `given`
    are the sizes of the user's own tensors, which seed 0 stands for.
    """
    low = {d.name: d.sizes[0] for d in domain.dims}
    high = {d.name: d.sizes[-1] for d in domain.dims}
    samples = [] if given is None else [sample(given, 0)]
    samples += [sample(example), sample(other, 2), sample(low, 3), sample(high, 4)]
    for name, sizes in (edges or {}).items():
        samples += [sample({**example, name: n}, 5) for n in sizes]
    if level == "quick":
        return _distinct(samples, flavours)
    samples += [sample(example, 6, flavour) for flavour in FLAVOURS[1:]]
    samples += [sample(other, 7), sample(example, 8)]
    for dim in domain.dims:
        samples += [sample({**example, dim.name: n}, 9 + n) for n in probes(dim)]
    for a, b in combinations(domain.dims, 2):
        samples += [sample({**example, a.name: low[a.name], b.name: high[b.name]}, 10)]
        samples += [sample({**example, a.name: high[a.name], b.name: low[b.name]}, 11)]
    near = {d.name: d.sizes[min(1, len(d.sizes) - 1)] for d in domain.dims}
    below = {d.name: d.sizes[-min(2, len(d.sizes))] for d in domain.dims}
    samples += [sample(near, 12), sample(below, 13), sample(near, 14, "most")]
    samples += [sample(low, 15, flavour) for flavour in FLAVOURS[1:]]
    samples += [sample(high, 16, "least"), sample(high, 17, "most"), sample(high, 23, "large")]
    samples += [sample(other, 18, "mixed")]
    samples += [sample(low, seed, "same") for seed in (2, 3)]  # next to the least and to the most legal value
    samples += _walk(domain)
    samples += _kinds_of_values(domain, example, other, thresholds)
    samples += _equal_sizes(domain, example)
    for name, sizes in (hints or {}).items():
        for n in (n for size in sizes for n in (size, size + 1) if n in domain[name].sizes):
            # `same` by the seed 1 is the most: rows without padding, as long as the size itself.
            samples += [sample({**example, name: n}, 19), sample({**example, name: n}, 1, "same")]
    if level == "deep":
        samples += _sweep(domain)
        # The lowest corner is cheapest, and there one value fills a row.
        samples += [sample(low, seed, "same") for seed in range(COUNTED)]
    return _distinct(samples, flavours)


def _kinds_of_values(domain: Domain, example: Point, other: Point, numbers: Iterable[float]) -> list[Sample]:
    """Return samples of values drawn on purpose, at small sizes, where they are cheap.

    They have one magnitude for each row, multiples of a half, equal rows and inputs, and each number that the code or
    the file compares with: near it, exactly, and one step to either side.
    """
    small = {d.name: d.sizes[min(WALK, len(d.sizes)) - 1] for d in domain.dims}
    points = (other, example, small)
    samples = [
        sample(points[i % 3], KINDS_SEED + i, flavour)
        for flavour, count in KINDS_OF_VALUES.items()
        for i in range(count)
    ]
    for number in numbers:
        samples += [replace(sample(small, seed), touch=Touch("near", number)) for seed in (21, 22)]
        # By the seed: whole rows, single elements, everything.
        samples += [replace(sample(points[seed % 3], seed), touch=Touch("exact", number)) for seed in (24, 25, 26)]
    return samples


def _equal_sizes(domain: Domain, example: Point) -> list[Sample]:
    """Return samples in which two dims have the same size."""
    samples = []
    for a, b in combinations(domain.dims, 2):
        candidates = (example[a.name], example[b.name], *a.sizes[1:])
        shared = next((n for n in candidates if n in a.sizes and n in b.sizes), None)
        if shared is not None:
            samples.append(sample({**example, a.name: shared, b.name: shared}, 27))
    return samples


def _walk(domain: Domain) -> list[Sample]:
    """Every dim through its smallest sizes, all at once and each in another order: every remainder by a small number.

    Small sizes are cheap, whatever the model.
    """
    samples = []
    for step in range(WALK if domain.dims else 0):
        point = {d.name: d.sizes[step * _STRIDES[i % 4] % min(WALK, len(d.sizes))] for i, d in enumerate(domain.dims)}
        samples.append(sample(point, 30 + step, "mixed" if step % 3 == 2 else "normal"))
    return samples


def _sweep(domain: Domain) -> list[Sample]:
    """Every size of every dim, or that many spread over it, with the other dims small and the flavours in turn."""
    samples = []
    for dim in domain.dims:
        count = min(len(dim.sizes), SWEEP)
        for i in range(count):
            others = {
                d.name: d.sizes[i * _STRIDES[k % 4] % min(SMALLEST, len(d.sizes))] for k, d in enumerate(domain.dims)
            }
            size = dim.sizes[i * (len(dim.sizes) - 1) // max(count - 1, 1)]
            samples.append(sample({**others, dim.name: size}, 100 + i, SWEPT[i % len(SWEPT)]))
    return samples


def _distinct(samples: Iterable[Sample], flavours: Sequence[Flavour]) -> list[Sample]:
    """Each point and known flavour once; once more only where another seed was asked for on purpose."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for one in samples:
        again = one.flavour in ("same", *KINDS_OF_VALUES) or one.touch is not None or not one.point
        key = (one.point, one.flavour, one.touch, one.seed if again else one.seed in (6, 7, 8))
        if key not in seen and one.flavour in flavours:
            seen.add(key)
            kept.append(one)
    return kept


def _prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))
