"""The lattice: the points over the declared dims at which a file is tested, with a seed and a flavor of values.

A level is a way of choosing samples. Bounds come first, because exporters are wrong there most often. The sizes next to
them, primes between them, the example, and pairs of extremes follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

from fairway.model.dims import Dim, Domain, Point
from fairway.model.sample import Sample, Touch, make_sample
from fairway.model.values import FLAVORS, Flavor

Level = Literal["none", "quick", "standard", "deep"]
LEVELS: tuple[Level, ...] = ("none", "quick", "standard", "deep")
"""At `none` a file is made and not judged."""

WALK_STEPS = 16
"""Samples of the walk through the smallest sizes."""

SWEEP_SIZES, SWEEP_SMALL_SIZES = 256, 4
"""At deep: sizes tried along each dim, and the number of smallest sizes that the other dims take meanwhile."""

COUNTED_VALUES = 256
"""At deep: legal values that are tried one by one at the lowest corner. Vocabularies can be much larger."""

SWEEP_FLAVORS: tuple[Flavor, ...] = ("normal", "mixed", "normal", "least", "normal", "mixed", "most")

SAMPLES_BY_FLAVOR: dict[Flavor, int] = {"log": 12, "halves": 8, "equal": 6}
"""Samples of each special flavor."""
FIRST_FLAVOR_SEED = 50
MORE_HALVES, MORE_HALVES_SEED = 16, 71
"""Further samples of `halves` for tiny inputs. Their seeds are odd, so that there are zeros among the numbers."""
TINY_ELEMENTS = 64

_WALK_STRIDES = (5, 7, 3, 11)
"""Odd numbers, so that each visits all sixteen places, in a different order."""


def choose_probe_sizes(dim: Dim) -> list[int]:
    """Return the sizes of one dim to test: the bounds, the sizes next to them, and primes at growing distances."""
    sizes = dim.sizes
    probes = [sizes[0], sizes[-1], sizes[min(1, len(sizes) - 1)], sizes[-min(2, len(sizes))]]
    step = max(2, sizes[0])
    while step < sizes[-1]:
        prime_size = next((n for n in sizes[(step - sizes[0]) // dim.multiple :] if _is_prime(n // dim.multiple)), None)
        if prime_size is not None:
            probes.append(prime_size)
        step *= 4
    return list(dict.fromkeys(probes))


@dataclass(frozen=True)
class LatticeHints:
    """Sizes and values worth testing that the domain does not show."""

    given: Point | None = None
    """The sizes of the user's own tensors, which have the seed 0."""
    edges: Mapping[str, Iterable[int]] = field(default_factory=dict)
    """By dim: sizes that the capture named."""
    sizes: Mapping[str, Iterable[int]] = field(default_factory=dict)
    """By dim: sizes among the file's constants."""
    thresholds: Iterable[float] = ()
    """Numbers with which the code or the file compares values."""
    is_tiny: bool = False
    """True if an ordinary sample has so few elements that more samples are needed to see combinations of zeros."""


def build_lattice(
    domain: Domain,
    example: Point,
    other: Point,
    level: Level,
    flavors: Sequence[Flavor] = FLAVORS,
    hints: LatticeHints | None = None,
) -> list[Sample]:
    """Return the samples of a level, those that fail most often first."""
    hints = hints or LatticeHints()
    low = {d.name: d.sizes[0] for d in domain.dims}
    high = {d.name: d.sizes[-1] for d in domain.dims}
    samples = [] if hints.given is None else [make_sample(hints.given, 0)]
    samples += [make_sample(example), make_sample(other, 2), make_sample(low, 3), make_sample(high, 4)]
    for name, sizes in hints.edges.items():
        samples += [make_sample({**example, name: n}, 5) for n in sizes]
    if level == "quick":
        return _keep_distinct(samples, flavors)
    samples += [make_sample(example, 6, flavor) for flavor in FLAVORS[1:]]
    samples += [make_sample(other, 7), make_sample(example, 8)]
    for dim in domain.dims:
        samples += [make_sample({**example, dim.name: n}, 9 + n) for n in choose_probe_sizes(dim)]
    for a, b in combinations(domain.dims, 2):
        samples += [make_sample({**example, a.name: low[a.name], b.name: high[b.name]}, 10)]
        samples += [make_sample({**example, a.name: high[a.name], b.name: low[b.name]}, 11)]
    near = {d.name: d.sizes[min(1, len(d.sizes) - 1)] for d in domain.dims}
    below = {d.name: d.sizes[-min(2, len(d.sizes))] for d in domain.dims}
    samples += [make_sample(near, 12), make_sample(below, 13), make_sample(near, 14, "most")]
    samples += [make_sample(low, 15, flavor) for flavor in FLAVORS[1:]]
    samples += [make_sample(high, 16, "least"), make_sample(high, 17, "most"), make_sample(high, 23, "large")]
    samples += [make_sample(other, 18, "mixed")]
    samples += [make_sample(low, seed, "same") for seed in (2, 3)]  # next to the least and to the most legal value
    samples += _walk_small_sizes(domain)
    samples += _list_special_values(domain, example, other, hints)
    samples += _list_equal_sizes(domain, example)
    for name, sizes in hints.sizes.items():
        for n in (n for size in sizes for n in (size, size + 1) if n in domain[name].sizes):
            # `same` with the seed 1 is the largest value: rows without padding, as long as the size.
            samples += [make_sample({**example, name: n}, 19), make_sample({**example, name: n}, 1, "same")]
    if level == "deep":
        samples += _sweep_dims(domain)
        # The lowest corner is cheapest, and one value fills a row there.
        samples += [make_sample(low, seed, "same") for seed in range(COUNTED_VALUES)]
    return _keep_distinct(samples, flavors)


def _list_special_values(domain: Domain, example: Point, other: Point, hints: LatticeHints) -> list[Sample]:
    """Return samples of special values, at small sizes where they are cheap.

    The values are: one magnitude for each row, multiples of a half, equal rows and inputs, and each number with which
    the code or the file compares, exactly, near it, and one step to either side.
    """
    small = {d.name: d.sizes[min(WALK_STEPS, len(d.sizes)) - 1] for d in domain.dims}
    points = (other, example, small)
    samples = [
        make_sample(points[i % 3], FIRST_FLAVOR_SEED + i, flavor)
        for flavor, count in SAMPLES_BY_FLAVOR.items()
        for i in range(count)
    ]
    if hints.is_tiny:
        samples += [make_sample(points[i % 3], MORE_HALVES_SEED + 2 * i, "halves") for i in range(MORE_HALVES)]
    for number in hints.thresholds:
        samples += [replace(make_sample(small, seed), touch=Touch("near", number)) for seed in (21, 22)]
        # By the seed: whole rows, single elements, everything.
        samples += [replace(make_sample(points[seed % 3], seed), touch=Touch("exact", number)) for seed in (24, 25, 26)]
    return samples


def _list_equal_sizes(domain: Domain, example: Point) -> list[Sample]:
    """Return samples in which two dims have the same size."""
    samples = []
    for a, b in combinations(domain.dims, 2):
        candidates = (example[a.name], example[b.name], *a.sizes[1:])
        shared = next((n for n in candidates if n in a.sizes and n in b.sizes), None)
        if shared is not None:
            samples.append(make_sample({**example, a.name: shared, b.name: shared}, 27))
    return samples


def _walk_small_sizes(domain: Domain) -> list[Sample]:
    """Return samples in which every dim takes its smallest sizes, each in another order.

    They contain every remainder by a small number. Small sizes are cheap for every model.
    """
    samples = []
    for step in range(WALK_STEPS if domain.dims else 0):
        point = {
            d.name: d.sizes[step * _WALK_STRIDES[i % 4] % min(WALK_STEPS, len(d.sizes))]
            for i, d in enumerate(domain.dims)
        }
        samples.append(make_sample(point, 30 + step, "mixed" if step % 3 == 2 else "normal"))
    return samples


def _sweep_dims(domain: Domain) -> list[Sample]:
    """Return samples with every size of every dim, or some of them evenly spread, and small sizes of the other dims."""
    samples = []
    for dim in domain.dims:
        count = min(len(dim.sizes), SWEEP_SIZES)
        for i in range(count):
            others = {
                d.name: d.sizes[i * _WALK_STRIDES[k % 4] % min(SWEEP_SMALL_SIZES, len(d.sizes))]
                for k, d in enumerate(domain.dims)
            }
            size = dim.sizes[i * (len(dim.sizes) - 1) // max(count - 1, 1)]
            samples.append(make_sample({**others, dim.name: size}, 100 + i, SWEEP_FLAVORS[i % len(SWEEP_FLAVORS)]))
    return samples


def _keep_distinct(samples: Iterable[Sample], flavors: Sequence[Flavor]) -> list[Sample]:
    """Keep each point and known flavor once, or several times if the seeds matter."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for sample in samples:
        is_seed_kept = sample.flavor in ("same", *SAMPLES_BY_FLAVOR) or sample.touch is not None or not sample.point
        key = (sample.point, sample.flavor, sample.touch, sample.seed if is_seed_kept else sample.seed in (6, 7, 8))
        if key not in seen and sample.flavor in flavors:
            seen.add(key)
            kept.append(sample)
    return kept


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))
