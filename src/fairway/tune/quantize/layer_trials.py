"""Measure the drop when one group is quantized, and the drop when it alone is kept in float.

Each sample goes through the slices twice, once in float and once quantized, and the values at every cut are kept. A
trial starts at its own cut and runs everything after it. All groups are tried on two samples. Then the groups with the
largest drop go first, so that a run that is stopped knows most about those that matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairway.tune.quantize.error_metrics import add_scores, score_outputs
from fairway.tune.quantize.prepare import Unit
from fairway.tune.quantize.schemes import QuantizeContext
from fairway.tune.quantize.search import MixEvaluator, make_model_function
from fairway.tune.quantize.slices import SlicedModel
from fairway.tune.quantize.trial_log import KEPT_ALONE, QUANTIZED_ALONE, RECIPE_METRIC_SAMPLE, LayerTrial

if TYPE_CHECKING:
    from fairway.tune.quantize.sample_split import InputArrays

RANKING_SAMPLES = 2
"""Samples that every group is tried on before the groups with the largest drop are preferred."""
GROUPS_PER_TASK = 8
"""Groups in one task for another process."""


@dataclass(frozen=True)
class UnitGroup:
    """Units that are toggled together."""

    name: str
    units: tuple[Unit, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(name for unit in self.units for name in unit.nodes)


def make_groups(units: Sequence[Unit], depth: int | None) -> tuple[UnitGroup, ...]:
    """Group units by the first `depth` names of their module path; without a depth each unit is a group."""
    groups: dict[str, list[Unit]] = {}
    for unit in units:
        name = unit.name if depth is None or not unit.module else ".".join(unit.module.split(".")[:depth])
        groups.setdefault(name, []).append(unit)
    return tuple(UnitGroup(name, tuple(members)) for name, members in groups.items())


@dataclass(frozen=True)
class TrialTask:
    """Groups to try on one sample, with everything that another process needs."""

    context: QuantizeContext
    number: int
    sample: InputArrays
    groups: tuple[UnitGroup, ...]
    kinds: tuple[str, ...]
    threads: int = 1


@dataclass(frozen=True)
class GroupSensitivity:
    """The measured drops of one group."""

    group: UnitGroup
    alone: float
    """The drop with this group quantized and all others in float."""
    alone_error: float | None
    """The standard error over samples; None for a single sample."""
    kept: float
    """The drop with this group in float and all others quantized."""
    samples: int


_sliced_models: dict[str, SlicedModel] = {}


def get_sliced_model(context: QuantizeContext, threads: int) -> SlicedModel:
    """Return the sliced model, built once in each process, for one prepared graph at a time."""
    key = f"{context.prepared.path}:{threads}"
    if key not in _sliced_models:
        _sliced_models.clear()
        _sliced_models[key] = SlicedModel(context, threads)
    return _sliced_models[key]


def run_task(task: TrialTask) -> list[LayerTrial]:
    return list(
        try_groups(get_sliced_model(task.context, task.threads), task.number, task.sample, task.groups, task.kinds)
    )


def try_groups(
    sliced_model: SlicedModel,
    number: int,
    sample: InputArrays,
    groups: Sequence[UnitGroup],
    kinds: Sequence[str],
    done: Collection[tuple[str, str, int]] = (),
) -> Iterator[LayerTrial]:
    """Yield the trials of each group on one sample, each as soon as it is finished."""
    places = {slice_.unit.name: place for place, slice_ in enumerate(sliced_model.slices) if slice_.unit is not None}
    float_outputs = None
    for kind in kinds:
        pending = [group for group in groups if (kind, group.name, number) not in done]
        if not pending:
            continue
        values_at_cuts = sliced_model.compute_cuts(sample, quantized=kind == KEPT_ALONE)
        if float_outputs is None:
            float_outputs = sliced_model.select_outputs(
                (values_at_cuts if kind == QUANTIZED_ALONE else sliced_model.compute_cuts(sample, quantized=False))[-1]
            )
        for group in pending:
            outputs = sliced_model.run_toggled(
                values_at_cuts, {places[unit.name] for unit in group.units}, quantized=kind == KEPT_ALONE
            )
            yield LayerTrial(kind, group.name, number, score_outputs(sliced_model.outputs, float_outputs, outputs))


def try_by_recipe_metric(
    evaluator: MixEvaluator, groups: Sequence[UnitGroup], done: Collection[tuple[str, str, int]]
) -> Iterator[LayerTrial]:
    """Yield trials by the recipe's metric, which runs the model as often as it needs, on its own samples."""
    assert evaluator.recipe_metric is not None
    all_units = [unit.name for unit in evaluator.sliced_model.units]
    for group in groups:
        names = {unit.name for unit in group.units}
        for kind, keep in ((QUANTIZED_ALONE, [n for n in all_units if n not in names]), (KEPT_ALONE, sorted(names))):
            if (kind, group.name, RECIPE_METRIC_SAMPLE) not in done:
                yield LayerTrial(
                    kind,
                    group.name,
                    RECIPE_METRIC_SAMPLE,
                    None,
                    evaluator.recipe_metric.compute_drop(make_model_function(evaluator.sliced_model, keep)),
                )


TrialStep = tuple[int, tuple[UnitGroup, ...], tuple[str, ...]]
"""A sample's number, the groups to try on it, and the kinds of trial."""


def plan_trials(
    samples: int,
    groups: Sequence[UnitGroup],
    done: Callable[[], Mapping[tuple[str, str, int], LayerTrial]],
    metric: str,
) -> Iterator[TrialStep]:
    """Yield the next trials, given the results so far.

    First every group is quantized alone on a few samples, then kept alone. Then all samples are tried for the half with
    the largest drop, then for the rest.
    """

    def list_pending(number: int, candidates: Sequence[UnitGroup], kinds: Sequence[str]) -> Iterator[TrialStep]:
        finished = done()
        pending = tuple(g for g in candidates if any((kind, g.name, number) not in finished for kind in kinds))
        if pending:
            yield number, pending, tuple(kinds)

    both_kinds = (QUANTIZED_ALONE, KEPT_ALONE)
    for kind in both_kinds:
        for number in range(min(RANKING_SAMPLES, samples)):
            yield from list_pending(number, groups, (kind,))
    for number in range(min(RANKING_SAMPLES, samples), samples):
        ranked = [sensitivity.group for sensitivity in summarize_trials(groups, done(), metric, with_errors=False)]
        yield from list_pending(number, ranked[: max(GROUPS_PER_TASK, len(ranked) // 2)], both_kinds)
    for number in range(samples):
        yield from list_pending(number, groups, both_kinds)


def summarize_trials(
    groups: Sequence[UnitGroup],
    trials: Mapping[tuple[str, str, int], LayerTrial],
    metric: str,
    with_errors: bool = True,
) -> list[GroupSensitivity]:
    """Return groups with their drops, largest first; groups without a trial are left out."""
    by_group: dict[tuple[str, str], list[LayerTrial]] = {}
    for trial in trials.values():
        by_group.setdefault((trial.kind, trial.group), []).append(trial)
    sensitivities = []
    for group in groups:
        alone, kept = by_group.get((QUANTIZED_ALONE, group.name), []), by_group.get((KEPT_ALONE, group.name), [])
        if alone:
            drop, error = _estimate_drop(alone, metric, with_errors)
            kept_drop = _estimate_drop(kept, metric, False)[0] if kept else math.nan
            sensitivities.append(GroupSensitivity(group, drop, error, kept_drop, len(alone)))
    return sorted(
        sensitivities, key=lambda sensitivity: -sensitivity.alone if not math.isnan(sensitivity.alone) else math.inf
    )


def _estimate_drop(trials: Sequence[LayerTrial], metric: str, with_errors: bool) -> tuple[float, float | None]:
    """Return the drop over all samples, and its standard error by the jackknife."""
    recipe_drops = [trial.drop for trial in trials if trial.drop is not None]
    if recipe_drops:
        return recipe_drops[-1], None
    scores = [trial.score for trial in trials if trial.score is not None]
    total = add_scores(scores).compute_drop(metric)
    count = len(scores)
    if count < 2 or not with_errors:
        return total, None
    without = [add_scores((*scores[:i], *scores[i + 1 :])).compute_drop(metric) for i in range(count)]
    mean = sum(without) / count
    return total, math.sqrt((count - 1) / count * sum((drop - mean) ** 2 for drop in without))
