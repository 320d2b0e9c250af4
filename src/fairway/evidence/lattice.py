"""Where to test: points over the declared dims, values by seed and flavour.

A level is a way of choosing samples. Bounds come first, since that is where exporters are wrong most often; then the
neighbours of the bounds, primes between them, the example, and pairs of extremes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from fairway.subject.dims import Dim, Domain, Point, show
from fairway.subject.values import FLAVOURS, Flavour

Level = Literal["quick", "standard", "deep"]
LEVELS: tuple[Level, ...] = ("quick", "standard", "deep")


@dataclass(frozen=True)
class Sample:
    """One test: a point, a seed and a flavour; or the user's own tensors, by number."""

    point: tuple[tuple[str, int], ...]
    seed: int = 1
    flavour: Flavour = "normal"
    data: int | None = None

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.point)

    def __str__(self) -> str:
        what = f"your data #{self.data}" if self.data is not None else f"seed {self.seed}"
        edge = "" if self.flavour == "normal" else f", {self.flavour} values"
        return f"{show(self.sizes)} ({what}{edge})"


def sample(point: Point, seed: int = 1, flavour: Flavour = "normal") -> Sample:
    return Sample(tuple(point.items()), seed, flavour)


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
) -> list[Sample]:
    """The samples of a level, cheapest to be wrong first.

    `edges` are sizes the capture itself spoke of; `given` those of the user's own tensors, which seed 0 stands for.
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
    samples += [sample(near, 12), sample(below, 13), sample(near, 14, "most"), sample(low, 15, "least")]
    return _distinct(samples, flavours)


def _distinct(samples: Iterable[Sample], flavours: Sequence[Flavour]) -> list[Sample]:
    """Each point and known flavour once; once more only where another seed was asked for on purpose."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for one in samples:
        key = (one.point, one.flavour, one.seed in (6, 7, 8))
        if key not in seen and one.flavour in flavours:
            seen.add(key)
            kept.append(one)
    return kept


def _prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))
