"""`fairway sensitivity`: rank the parts of a model by the drop when quantized, and list those to leave in float."""

from __future__ import annotations

import errno
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.cpu import choose_arithmetic, detect_cpu
from fairway.model.onnx_file import open_model
from fairway.model.subject import Subject
from fairway.record.files import hash_file, read_versions
from fairway.record.progress import EventSink, ItemsCounted, StageStarted, ignore_event
from fairway.tune.quantize.accuracy import OrtFile
from fairway.tune.quantize.calibration import calibrate
from fairway.tune.quantize.error_metrics import RecipeMetric
from fairway.tune.quantize.layer_trials import (
    GROUPS_PER_TASK,
    RANKING_SAMPLES,
    GroupSensitivity,
    TrialStep,
    TrialTask,
    UnitGroup,
    get_sliced_model,
    make_groups,
    plan_trials,
    run_task,
    summarize_trials,
    try_by_recipe_metric,
    try_groups,
)
from fairway.tune.quantize.prepare import prepare_graph
from fairway.tune.quantize.quantize_file import QuantizeSettings, check_settings
from fairway.tune.quantize.sample_split import SampleSplit, open_samples
from fairway.tune.quantize.schemes import QuantizeContext
from fairway.tune.quantize.search import Mix, MixEvaluator, find_smallest_mix
from fairway.tune.quantize.tradeoff_chart import draw_ranking
from fairway.tune.quantize.trial_log import LayerTrial, TrialFile, read_calibration_count
from fairway.workers.fanout import IN_PROCESS, Parallelism, fan_out
from fairway.workers.workshop import replace_file

Item = TypeVar("Item")
TRIALS_FILE = "trials.jsonl"
CALIBRATION_SHARE, CONCLUSION_SHARE = 0.5, 0.1
"""Shares of the time: when calibration must end, and what is reserved for the search at the end."""


@dataclass(frozen=True)
class Sensitivity:
    """The ranking, and the nodes to leave in float to stay within the allowed drop."""

    ranked: tuple[GroupSensitivity, ...]
    groups: int
    finished: bool
    metric: str
    max_drop: float
    all_quantized: float
    do_not_quantize: tuple[str, ...]
    """Nodes to keep in float; with them the drop is `drop_without`."""
    drop_without: float
    trials: int
    seconds: float
    folder: Path

    def __str__(self) -> str:
        from fairway.tune.quantize.quality_table import render_ranking

        return render_ranking(self)

    def as_dict(self) -> dict[str, object]:
        rows = [
            {
                "group": sensitivity.group.name,
                "modules": sorted({u.module for u in sensitivity.group.units if u.module}),
                "nodes": list(sensitivity.group.nodes),
                "operators": sorted({u.operator for u in sensitivity.group.units}),
                "weights": sum(u.weights for u in sensitivity.group.units),
                "alone": sensitivity.alone,
                "alone_error": sensitivity.alone_error,
                "kept": sensitivity.kept,
                "samples": sensitivity.samples,
            }
            for sensitivity in self.ranked
        ]
        return {
            "metric": self.metric,
            "finished": self.finished,
            "all_quantized": self.all_quantized,
            "trials": self.trials,
            "seconds": round(self.seconds, 2),
            "ranking": rows,
        }


@dataclass(frozen=True)
class SensitivityRequest:
    """The time limit, the grouping of units, and the number of processes."""

    seconds: float | None = None
    """The time limit; None to run all trials."""
    depth: int | None = None
    """Group units by so many names of their module path; None for each unit by itself."""
    parallelism: Parallelism = IN_PROCESS
    overwrite: bool = False


DEFAULT_REQUEST = SensitivityRequest()


def measure_sensitivity(
    source: Path,
    subject: Subject,
    folder: Path,
    settings: QuantizeSettings,
    request: SensitivityRequest = DEFAULT_REQUEST,
    on_event: EventSink = ignore_event,
) -> Sensitivity:
    """Rank the groups; stop at the time limit with what is known by then.

    Finished trials stay in `folder`, and a later run continues with them.
    """
    started = time.monotonic()

    def compute_deadline(share: float) -> float | None:
        return None if request.seconds is None else started + request.seconds * share

    metric = check_settings(settings, subject)
    open_model(source, subject)
    try:
        folder.mkdir(exist_ok=True)
        with TemporaryDirectory(prefix="fairway-") as work:
            on_event(StageStarted("preparing the graph"))
            prepared = prepare_graph(source, Path(work))
            samples = open_samples(subject, settings.data, settings.samples)
            on_event(StageStarted(f"calibrating with {samples.source}"))
            # Trials of an earlier run are only comparable with the same ranges.
            calibration_count = None if request.overwrite else read_calibration_count(folder / TRIALS_FILE)
            calibration_deadline = None if calibration_count is not None else compute_deadline(CALIBRATION_SHARE)
            calibration = islice(samples.read_calibration(), calibration_count)
            ranges = calibrate(prepared, calibration, settings.method, Path(work), calibration_deadline)
            context = QuantizeContext(
                prepared, choose_arithmetic(detect_cpu()), ranges, settings.per_channel, Path(work)
            )
            groups = make_groups(prepared.units, request.depth)
            if not groups:
                raise complain(Code.NOTHING_QUANTIZED, f"{source.name} contains nothing to quantize")
            about = {
                **_describe_trials(source, settings, metric, samples, request.depth),
                "calibrated_with": ranges.samples,
            }
            trials = TrialFile(folder / TRIALS_FILE, about, request.overwrite)
            recipe_metric: RecipeMetric | None = None
            if metric == "recipe" and subject.metric is not None:
                recipe_metric = RecipeMetric(subject.metric, OrtFile(prepared.path).run_by_name)
            try:
                measurement = _Measurement(
                    context, samples, groups, metric, recipe_metric, trials, request.parallelism, on_event
                )
                finished = measurement.measure(compute_deadline(1 - CONCLUSION_SHARE))
                result = measurement.conclude(settings.budget.max_drop, finished, folder, started)
            finally:
                trials.close()
            _write_results(result, source, folder)
            return result
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.ENOENT, errno.ENOTDIR):
            raise complain(Code.CANNOT_WRITE, f"{folder}: {error.strerror}") from error
        raise


def _describe_trials(
    source: Path, settings: QuantizeSettings, metric: str, samples: SampleSplit, depth: int | None
) -> dict[str, object]:
    """Describe what the trials belong to: if any of it changes, they belong to something else."""
    digest = hashlib.sha256()
    for sample in samples.held_back:
        for name, value in sorted(sample.items()):
            digest.update(f"{name}{value.dtype}{value.shape}".encode() + value.tobytes())
    return {
        "model": hash_file(source),
        "samples": digest.hexdigest(),
        "source": samples.source,
        "method": settings.method,
        "per_channel": settings.per_channel,
        "metric": metric,
        "depth": depth,
        "arithmetic": asdict(choose_arithmetic(detect_cpu())),
        "onnxruntime": read_versions().get("onnxruntime"),
    }


@dataclass(frozen=True)
class _Measurement:
    """One run, from the trials of earlier runs to a ranking."""

    context: QuantizeContext
    samples: SampleSplit
    groups: Sequence[UnitGroup]
    metric: str
    recipe_metric: RecipeMetric | None
    file: TrialFile
    parallelism: Parallelism
    on_event: EventSink

    def measure(self, until: float | None) -> bool:
        """Write trials until all are finished or the time is up; return whether all are finished."""
        total = 2 * len(self.groups) * (1 if self.recipe_metric is not None else len(self.samples.held_back))
        for trial in self._run_trials(until):
            self.file.add(trial)
            self.on_event(ItemsCounted(len(self.file.trials), total, "trials", "measuring"))
        return len(self.file.trials) >= total

    def _run_trials(self, until: float | None) -> Iterator[LayerTrial]:
        if self.recipe_metric is not None:
            evaluator = self._make_evaluator()
            yield from _take_until(try_by_recipe_metric(evaluator, self.groups, self.file.trials), until)
        elif self.parallelism.is_in_process:
            sliced = get_sliced_model(self.context, 1)
            for number, groups, kinds in self._plan_trials():
                sample = self.samples.held_back[number]
                yield from _take_until(try_groups(sliced, number, sample, groups, kinds, self.file.trials), until)
                if until is not None and time.monotonic() >= until:
                    return
        else:
            tasks = _take_until(self._make_tasks(), until)
            for trials in fan_out(run_task, tasks, self.parallelism):
                yield from trials

    def _plan_trials(self) -> Iterator[TrialStep]:
        return plan_trials(len(self.samples.held_back), self.groups, lambda: self.file.trials, self.metric)

    def _make_tasks(self) -> Iterator[TrialTask]:
        planned: set[tuple[int, str, str]] = set()
        for number, groups, kinds in self._plan_trials():
            pending = [g for g in groups if any((number, g.name, kind) not in planned for kind in kinds)]
            planned |= {(number, group.name, kind) for group in pending for kind in kinds}
            for start in range(0, len(pending), GROUPS_PER_TASK):
                chunk = tuple(pending[start : start + GROUPS_PER_TASK])
                yield TrialTask(self.context, number, self.samples.held_back[number], chunk, kinds)

    def _make_evaluator(self, samples: int | None = None) -> MixEvaluator:
        return MixEvaluator(
            get_sliced_model(self.context, 1), self.samples.held_back[:samples], self.metric, self.recipe_metric
        )

    def conclude(self, max_drop: float, finished: bool, folder: Path, started: float) -> Sensitivity:
        """Return the ranking, and the fewest groups to keep in float according to it."""
        ranked = summarize_trials(self.groups, self.file.trials, self.metric)
        evaluator = self._make_evaluator(None if finished else RANKING_SAMPLES)
        units = [unit for sensitivity in ranked for unit in sensitivity.group.units]
        all_quantized = evaluator.measure_drop(())
        mix = Mix((), all_quantized, 1)
        if all_quantized > max_drop:
            mix = find_smallest_mix(units, evaluator.measure_drop, max_drop)
        nodes = [name for unit in units if unit.name in mix.keep for name in unit.nodes]
        return Sensitivity(
            ranked=tuple(ranked),
            groups=len(self.groups),
            finished=finished,
            metric=self.metric,
            max_drop=max_drop,
            all_quantized=all_quantized,
            do_not_quantize=tuple(nodes),
            drop_without=mix.drop,
            trials=len(self.file.trials),
            seconds=time.monotonic() - started,
            folder=folder,
        )


def _take_until(items: Iterable[Item], until: float | None) -> Iterator[Item]:
    """Yield items until the time is up, but at least one."""
    for item in items:
        yield item
        if until is not None and time.monotonic() >= until:
            return


def _write_results(result: Sensitivity, source: Path, folder: Path) -> None:
    """Replace each file atomically."""
    keep = {
        "model": source.name,
        "sha256": hash_file(source),
        "metric": result.metric,
        "max_drop": result.max_drop,
        "drop_all_quantized": result.all_quantized,
        "drop_without_these": result.drop_without,
        "finished": result.finished,
        "nodes": list(result.do_not_quantize),
        "modules": sorted(
            {
                u.module
                for sensitivity in result.ranked
                for u in sensitivity.group.units
                if u.module and set(u.nodes) & set(result.do_not_quantize)
            }
        ),
    }
    texts = {
        "ranking.json": json.dumps(result.as_dict(), indent=1) + "\n",
        "do_not_quantize.json": json.dumps(keep, indent=1) + "\n",
        "ranking.svg": draw_ranking(result.ranked, result.metric, source.name),
    }
    for name, text in texts.items():
        replace_file(folder / name, text)
