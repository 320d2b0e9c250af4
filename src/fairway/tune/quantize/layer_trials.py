"""How much is lost when one group is quantised, and how much is won when it alone is kept in float.

Each sample goes through the slices twice, once in float and once quantised, and the values at every cut are kept. A
trial starts at its own cut and runs what is behind it. Two samples are tried on all groups; then those that lost most
go first, so that a run that is stopped knows most about those that matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairway.tune.quantize.error_metrics import add_up, compare
from fairway.tune.quantize.prepare import Unit
from fairway.tune.quantize.schemes import Making
from fairway.tune.quantize.search import Scene, as_function
from fairway.tune.quantize.slices import Sliced
from fairway.tune.quantize.trial_log import ALONE, KEPT, OWN, LayerTrial

if TYPE_CHECKING:
    from fairway.tune.quantize.sample_split import Sample

FIRST = 2
"""Samples that every group is tried on before some are preferred."""
CHUNK = 8
"""Groups in one task of another process."""


@dataclass(frozen=True)
class UnitGroup:
    """Units that are toggled together."""

    name: str
    units: tuple[Unit, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(name for unit in self.units for name in unit.nodes)


def make_groups(units: Sequence[Unit], depth: int | None) -> tuple[UnitGroup, ...]:
    """Each unit by itself, or those whose modules have the first `depth` names of their paths in common."""
    found: dict[str, list[Unit]] = {}
    for unit in units:
        name = unit.name if depth is None or not unit.module else ".".join(unit.module.split(".")[:depth])
        found.setdefault(name, []).append(unit)
    return tuple(UnitGroup(name, tuple(some)) for name, some in found.items())


@dataclass(frozen=True)
class TrialTask:
    """Some groups on one sample; all that another process needs."""

    making: Making
    number: int
    sample: Sample
    groups: tuple[UnitGroup, ...]
    kinds: tuple[str, ...]
    threads: int = 1


@dataclass(frozen=True)
class Sensed:
    """What is known of one group."""

    group: UnitGroup
    alone: float
    """The drop with it alone quantised."""
    alone_error: float | None
    """Standard error over samples; None from a single one."""
    kept: float
    """The drop with it alone in float, all others quantised."""
    samples: int


_built: dict[str, Sliced] = {}


def slices_of(making: Making, threads: int) -> Sliced:
    """Built once in each process, for one prepared graph at a time."""
    key = f"{making.prepared.path}:{threads}"
    if key not in _built:
        _built.clear()
        _built[key] = Sliced(making, threads)
    return _built[key]


def run_task(task: TrialTask) -> list[LayerTrial]:
    return list(try_groups(slices_of(task.making, task.threads), task.number, task.sample, task.groups, task.kinds))


def try_groups(
    sliced: Sliced,
    number: int,
    sample: Sample,
    groups: Sequence[UnitGroup],
    kinds: Sequence[str],
    done: Collection[tuple[str, str, int]] = (),
) -> Iterator[LayerTrial]:
    """The trials of each group on one sample, each as soon as it is finished."""
    places = {one.unit.name: place for place, one in enumerate(sliced.slices) if one.unit is not None}
    right = None
    for kind in kinds:
        left = [group for group in groups if (kind, group.name, number) not in done]
        if not left:
            continue
        cuts = sliced.cuts(sample, quantised=kind == KEPT)
        if right is None:
            right = sliced.answers((cuts if kind == ALONE else sliced.cuts(sample, quantised=False))[-1])
        for group in left:
            outputs = sliced.toggled(cuts, {places[unit.name] for unit in group.units}, quantised=kind == KEPT)
            yield LayerTrial(kind, group.name, number, compare(sliced.outputs, right, outputs))


def try_by_own_metric(
    scene: Scene, groups: Sequence[UnitGroup], done: Collection[tuple[str, str, int]]
) -> Iterator[LayerTrial]:
    """The recipe's metric runs the model as often as it likes, on samples of its own."""
    assert scene.own is not None
    everything = [unit.name for unit in scene.sliced.units]
    for group in groups:
        own = {unit.name for unit in group.units}
        for kind, keep in ((ALONE, [n for n in everything if n not in own]), (KEPT, sorted(own))):
            if (kind, group.name, OWN) not in done:
                yield LayerTrial(kind, group.name, OWN, None, scene.own.drop(as_function(scene.sliced, keep)))


Step = tuple[int, tuple[UnitGroup, ...], tuple[str, ...]]
"""A sample's number, the groups to try on it, and the kinds of trial."""


def plan(
    samples: int,
    groups: Sequence[UnitGroup],
    done: Callable[[], Mapping[tuple[str, str, int], LayerTrial]],
    metric: str,
) -> Iterator[Step]:
    """What to try next, by what is known by then.

    First what ranks all groups, on a few samples, then their other trial; then all samples for the half that lost
    most; then the rest.
    """

    def left(number: int, some: Sequence[UnitGroup], kinds: Sequence[str]) -> Iterator[Step]:
        have = done()
        new = tuple(g for g in some if any((kind, g.name, number) not in have for kind in kinds))
        if new:
            yield number, new, tuple(kinds)

    both = (ALONE, KEPT)
    for kind in both:
        for number in range(min(FIRST, samples)):
            yield from left(number, groups, (kind,))
    for number in range(min(FIRST, samples), samples):
        ranked = [one.group for one in sum_up(groups, done(), metric, errors=False)]
        yield from left(number, ranked[: max(CHUNK, len(ranked) // 2)], both)
    for number in range(samples):
        yield from left(number, groups, both)


def sum_up(
    groups: Sequence[UnitGroup], trials: Mapping[tuple[str, str, int], LayerTrial], metric: str, errors: bool = True
) -> list[Sensed]:
    """Groups with what their trials say, the one that loses most first; groups without a trial are left out."""
    by_group: dict[tuple[str, str], list[LayerTrial]] = {}
    for trial in trials.values():
        by_group.setdefault((trial.kind, trial.group), []).append(trial)
    found = []
    for group in groups:
        alone, kept = by_group.get((ALONE, group.name), []), by_group.get((KEPT, group.name), [])
        if alone:
            drop, error = _drop(alone, metric, errors)
            other = _drop(kept, metric, False)[0] if kept else math.nan
            found.append(Sensed(group, drop, error, other, len(alone)))
    return sorted(found, key=lambda one: -one.alone if not math.isnan(one.alone) else math.inf)


def _drop(trials: Sequence[LayerTrial], metric: str, errors: bool) -> tuple[float, float | None]:
    """The drop over all samples, and its standard error by leaving out one at a time."""
    own = [trial.drop for trial in trials if trial.drop is not None]
    if own:
        return own[-1], None
    scores = [trial.score for trial in trials if trial.score is not None]
    whole = add_up(scores).drop(metric)
    count = len(scores)
    if count < 2 or not errors:
        return whole, None
    without = [add_up((*scores[:i], *scores[i + 1 :])).drop(metric) for i in range(count)]
    mean = sum(without) / count
    return whole, math.sqrt((count - 1) / count * sum((one - mean) ** 2 for one in without))
