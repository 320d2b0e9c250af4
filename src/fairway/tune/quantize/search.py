"""Mixed precision: find the fewest units to keep in float so that the drop stays within the budget.

Units are ranked by the drop that each causes when it alone is quantized. A binary search over this ranking finds how
many to keep. Mixes are run as paths through the slices, so a step takes a few runs and needs no file. The search uses
calibration samples; the held-back samples judge only the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairway.tune.quantize.error_metrics import Array, ModelFunction, RecipeMetric, Score, add_scores, score_outputs
from fairway.tune.quantize.prepare import Unit
from fairway.tune.quantize.slices import SlicedModel

if TYPE_CHECKING:
    from fairway.tune.quantize.sample_split import InputArrays

BUDGET_MARGIN = 0.8
"""The share of the budget that the search may use, because a mix does a little worse on other samples."""

MAX_RESTORED_UNITS = 64
"""At most so many kept units are tried quantized again."""


@dataclass(frozen=True)
class Mix:
    """The units to keep in float, and the drop measured during the search."""

    keep: tuple[str, ...]
    drop: float
    trials: int


class MixEvaluator:
    """Measures the drop of a mix, with the slices, some samples and the float model's outputs for them."""

    def __init__(
        self,
        sliced_model: SlicedModel,
        samples: Sequence[InputArrays],
        metric: str,
        recipe_metric: RecipeMetric | None = None,
    ) -> None:
        self.sliced_model = sliced_model
        self.samples = samples
        self.metric = metric
        self.recipe_metric = recipe_metric
        all_units = [unit.name for unit in sliced_model.units]
        self.float_outputs = [sliced_model.run_mix(sample, all_units) for sample in samples]

    def score(self, number: int, outputs: Sequence[Array]) -> Score:
        return score_outputs(self.sliced_model.outputs, self.float_outputs[number], outputs)

    def measure_drop(self, keep: Sequence[str]) -> float:
        """Return the drop of the mix with these units in float."""
        if self.recipe_metric is not None:
            return self.recipe_metric.compute_drop(make_model_function(self.sliced_model, keep))
        scores = (self.score(i, self.sliced_model.run_mix(sample, keep)) for i, sample in enumerate(self.samples))
        return add_scores(scores).compute_drop(self.metric)


def make_model_function(sliced_model: SlicedModel, keep: Sequence[str]) -> ModelFunction:
    """Return the mix as a function from inputs to named outputs."""
    return lambda feeds: dict(zip(sliced_model.outputs, sliced_model.run_mix(feeds, keep), strict=True))


def rank_units(evaluator: MixEvaluator) -> list[tuple[Unit, float]]:
    """Rank units by the drop of each when it alone is quantized, worst first."""
    sliced_model = evaluator.sliced_model
    names = [unit.name for unit in sliced_model.units]
    if evaluator.recipe_metric is not None:
        drops = {
            name: evaluator.recipe_metric.compute_drop(
                make_model_function(sliced_model, [n for n in names if n != name])
            )
            for name in names
        }
    else:
        totals: dict[str, list[Score]] = {name: [] for name in names}
        for number, sample in enumerate(evaluator.samples):
            values_at_cuts = sliced_model.compute_cuts(sample, quantized=False)
            for place, slice_ in enumerate(sliced_model.slices):
                if slice_.unit is not None:
                    outputs = sliced_model.run_toggled(values_at_cuts, {place}, quantized=False)
                    totals[slice_.unit.name].append(evaluator.score(number, outputs))
        drops = {name: add_scores(scores).compute_drop(evaluator.metric) for name, scores in totals.items()}
    return sorted(((unit, drops[unit.name]) for unit in sliced_model.units), key=lambda ranked: -ranked[1])


def find_smallest_mix(ranked: Sequence[Unit], drop_of: Callable[[Sequence[str]], float], max_drop: float) -> Mix:
    """Find the shortest prefix of the ranking that, kept in float, brings the drop down to `max_drop`.

    A binary search that assumes a longer prefix is never worse. If that is wrong, the result is some prefix within the
    budget, not the shortest.
    """
    names = [unit.name for unit in ranked]
    low, high = 0, len(names)
    trials = 1
    best = Mix(tuple(names), 0.0, trials)
    first = drop_of(())
    if first <= max_drop:
        return Mix((), first, trials)
    while high - low > 1:
        middle = (low + high) // 2
        drop = drop_of(names[:middle])
        trials += 1
        if drop <= max_drop:
            high, best = middle, Mix(tuple(names[:middle]), drop, trials)
        else:
            low = middle
    return _restore_units(Mix(best.keep, best.drop, trials), ranked, drop_of, max_drop)


def _restore_units(mix: Mix, ranked: Sequence[Unit], drop_of: Callable[[Sequence[str]], float], max_drop: float) -> Mix:
    """Quantize kept units again as far as the budget allows, largest first, since they cost most in size and time."""
    keep, drop, trials = list(mix.keep), mix.drop, mix.trials
    for unit in sorted((u for u in ranked if u.name in mix.keep), key=lambda u: -u.weights)[:MAX_RESTORED_UNITS]:
        without = [name for name in keep if name != unit.name]
        restored_drop = drop_of(without)
        trials += 1
        if restored_drop <= max_drop:
            keep, drop = without, restored_drop
    return Mix(tuple(keep), drop, trials)
