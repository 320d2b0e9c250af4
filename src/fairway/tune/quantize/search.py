"""Mixed precision: the fewest units kept in float with which the drop stays within the budget.

Units are ranked by the loss of each when it alone is quantised. How many of them to keep is found by halving, on mixes
that are paths through the slices, so a step costs a few runs and no file. The samples are the calibration's: those held
back judge the result and nothing before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairway.tune.quantize.error_metrics import Array, ModelFunction, OwnMetric, Score, add_up, compare
from fairway.tune.quantize.prepare import Unit
from fairway.tune.quantize.slices import Sliced

if TYPE_CHECKING:
    from fairway.tune.quantize.sample_split import Sample

MARGIN = 0.8
"""Of the budget. What is chosen on some samples does a little worse on others."""

GIVEN_BACK = 64
"""Units at most that are tried to be given back."""


@dataclass(frozen=True)
class Mix:
    """Which units to keep, and the drop that was seen while choosing."""

    keep: tuple[str, ...]
    drop: float
    looked_at: int


class Scene:
    """The slices, some samples and what the float model says to them: what a mix is tried on."""

    def __init__(self, sliced: Sliced, samples: Sequence[Sample], metric: str, own: OwnMetric | None = None) -> None:
        self.sliced = sliced
        self.samples = samples
        self.metric = metric
        self.own = own
        everything = [unit.name for unit in sliced.units]
        self.answers = [sliced.mixed(sample, everything) for sample in samples]

    def score(self, number: int, outputs: Sequence[Array]) -> Score:
        return compare(self.sliced.outputs, self.answers[number], outputs)

    def drop(self, keep: Sequence[str]) -> float:
        """The drop of the mix with these units in float."""
        if self.own is not None:
            return self.own.drop(as_function(self.sliced, keep))
        scores = (self.score(i, self.sliced.mixed(sample, keep)) for i, sample in enumerate(self.samples))
        return add_up(scores).drop(self.metric)


def as_function(sliced: Sliced, keep: Sequence[str]) -> ModelFunction:
    return lambda feeds: dict(zip(sliced.outputs, sliced.mixed(feeds, keep), strict=True))


def rank(scene: Scene) -> list[tuple[Unit, float]]:
    """Units by the drop of each when it alone is quantised, the worst first."""
    sliced = scene.sliced
    names = [unit.name for unit in sliced.units]
    if scene.own is not None:
        alone = {name: scene.own.drop(as_function(sliced, [n for n in names if n != name])) for name in names}
    else:
        totals: dict[str, list[Score]] = {name: [] for name in names}
        for number, sample in enumerate(scene.samples):
            cuts = sliced.cuts(sample, quantised=False)
            for place, one in enumerate(sliced.slices):
                if one.unit is not None:
                    outputs = sliced.toggled(cuts, {place}, quantised=False)
                    totals[one.unit.name].append(scene.score(number, outputs))
        alone = {name: add_up(scores).drop(scene.metric) for name, scores in totals.items()}
    return sorted(((unit, alone[unit.name]) for unit in sliced.units), key=lambda one: -one[1])


def fewest_kept(ranked: Sequence[Unit], drop_of: Callable[[Sequence[str]], float], most: float) -> Mix:
    """By halving: the shortest head of the ranking that, kept in float, brings the drop down to `most`.

    A longer head is never expected to be worse; where it is, the answer is some head within the budget, not the
    shortest.
    """
    names = [unit.name for unit in ranked]
    low, high = 0, len(names)
    looked = 1
    best = Mix(tuple(names), 0.0, looked)
    first = drop_of(())
    if first <= most:
        return Mix((), first, looked)
    while high - low > 1:
        middle = (low + high) // 2
        drop = drop_of(names[:middle])
        looked += 1
        if drop <= most:
            high, best = middle, Mix(tuple(names[:middle]), drop, looked)
        else:
            low = middle
    return _give_back(Mix(best.keep, best.drop, looked), ranked, drop_of, most)


def _give_back(mix: Mix, ranked: Sequence[Unit], drop_of: Callable[[Sequence[str]], float], most: float) -> Mix:
    """Units that need not be kept after all, the largest first: they cost most in size and time."""
    keep, drop, looked = list(mix.keep), mix.drop, mix.looked_at
    for unit in sorted((u for u in ranked if u.name in mix.keep), key=lambda u: -u.weights)[:GIVEN_BACK]:
        without = [name for name in keep if name != unit.name]
        tried = drop_of(without)
        looked += 1
        if tried <= most:
            keep, drop = without, tried
    return Mix(tuple(keep), drop, looked)
