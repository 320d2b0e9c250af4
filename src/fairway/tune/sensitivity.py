"""`fairway sensitivity`: which parts of a model lose most when quantised, and which of them to leave in float."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairway.diagnostics.errors import complain
from fairway.model.cpu import choose_arithmetic, this_cpu
from fairway.model.onnx_file import check_room, check_signature, open_header
from fairway.model.subject import Subject
from fairway.record.files import hash_file, versions
from fairway.tune.quantize.accuracy import Session
from fairway.tune.quantize.calibration import calibrate
from fairway.tune.quantize.error_metrics import OwnMetric
from fairway.tune.quantize.layer_trials import (
    CHUNK,
    FIRST,
    Sensed,
    Step,
    TrialTask,
    UnitGroup,
    make_groups,
    plan,
    run_task,
    slices_of,
    sum_up,
    try_by_own_metric,
    try_groups,
)
from fairway.tune.quantize.prepare import prepare
from fairway.tune.quantize.quantize_file import Wishes, check_wishes
from fairway.tune.quantize.sample_split import Samples, open_samples
from fairway.tune.quantize.schemes import Making
from fairway.tune.quantize.search import Mix, Scene, fewest_kept
from fairway.tune.quantize.tradeoff_chart import draw
from fairway.tune.quantize.trial_log import LayerTrial, TrialFile, calibrated_with
from fairway.workers.fanout import HERE, Spreading, fan_out

Progress = Callable[[Any], None]
TRIALS = "trials.jsonl"
CALIBRATING, CONCLUDING = 0.5, 0.1
"""Shares of the time: until when calibrating may go on, and what is left for the search at the end."""


@dataclass(frozen=True)
class Sensitivity:
    """The ranking, and what to leave in float to stay within the drop that was asked for."""

    ranked: tuple[Sensed, ...]
    groups: int
    finished: bool
    metric: str
    max_drop: float
    all_quantised: float
    do_not_quantize: tuple[str, ...]
    """Nodes; with them in float, the drop is `drop_without`."""
    drop_without: float
    trials: int
    seconds: float
    folder: Path

    def __str__(self) -> str:
        from fairway.tune.quantize.quality_table import render_ranking

        return render_ranking(self)

    def as_dict(self) -> dict[str, Any]:
        rows = [
            {
                "group": one.group.name,
                "modules": sorted({u.module for u in one.group.units if u.module}),
                "nodes": list(one.group.nodes),
                "operators": sorted({u.operator for u in one.group.units}),
                "weights": sum(u.weights for u in one.group.units),
                "alone": one.alone,
                "alone_error": one.alone_error,
                "kept": one.kept,
                "samples": one.samples,
            }
            for one in self.ranked
        ]
        return {
            "metric": self.metric,
            "finished": self.finished,
            "all_quantised": self.all_quantised,
            "trials": self.trials,
            "seconds": round(self.seconds, 2),
            "ranking": rows,
        }


def sense_file(
    source: Path,
    subject: Subject,
    folder: Path,
    wishes: Wishes,
    data: Path | None = None,
    budget: float | None = None,
    depth: int | None = None,
    spreading: Spreading = HERE,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Sensitivity:
    """Ranks the groups; stops when `budget` seconds are over, with what is known by then. What was tried stays."""
    started = time.monotonic()
    heard = progress or (lambda event: None)
    metric = check_wishes(wishes, subject)
    header = open_header(source)
    check_room(header)
    check_signature(header, subject)
    try:
        folder.mkdir(exist_ok=True)
        with TemporaryDirectory(prefix="fairway-") as work:
            heard(("stage", "preparing the graph"))
            prepared = prepare(source, Path(work))
            samples = open_samples(subject, data, wishes.samples)
            heard(("stage", f"calibrating with {samples.source}"))
            # Trials that are gone on with need the ranges that they were made with.
            count = None if overwrite else calibrated_with(folder / TRIALS)
            share = None if budget is None or count is not None else started + budget * CALIBRATING
            some = islice(samples.calibrating(), count)
            ranges = calibrate(prepared, some, wishes.method, Path(work), share)
            making = Making(prepared, choose_arithmetic(this_cpu()), ranges, wishes.per_channel, Path(work))
            groups = make_groups(prepared.units, depth)
            if not groups:
                raise complain("FW705", f"{source.name} holds nothing to quantise")
            about = {**_about(source, wishes, metric, samples, depth), "calibrated_with": ranges.samples}
            file = TrialFile(folder / TRIALS, about, overwrite)
            try:
                run = _Run(making, samples, groups, metric, subject, file, spreading, heard)
                finished = run.measure(None if budget is None else started + budget * (1 - CONCLUDING))
                result = run.conclude(wishes.budget.max_drop, finished, folder, started)
            finally:
                file.close()
            _write(result, source, folder)
            return result
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.ENOENT, errno.ENOTDIR):
            raise complain("FW009", f"{folder}: {error.strerror}") from error
        raise


def _about(source: Path, wishes: Wishes, metric: str, samples: Samples, depth: int | None) -> dict[str, Any]:
    """What the trials are of: a change in any of it makes them trials of something else."""
    digest = hashlib.sha256()
    for sample in samples.held_back:
        for name, value in sorted(sample.items()):
            digest.update(f"{name}{value.dtype}{value.shape}".encode() + value.tobytes())
    return {
        "model": hash_file(source),
        "samples": digest.hexdigest(),
        "source": samples.source,
        "method": wishes.method,
        "per_channel": wishes.per_channel,
        "metric": metric,
        "depth": depth,
        "arithmetic": asdict(choose_arithmetic(this_cpu())),
        "onnxruntime": versions().get("onnxruntime"),
    }


class _Run:
    """One measuring, from the trials that are there to a ranking."""

    def __init__(
        self,
        making: Making,
        samples: Samples,
        groups: Sequence[UnitGroup],
        metric: str,
        subject: Subject,
        file: TrialFile,
        spreading: Spreading,
        heard: Progress,
    ) -> None:
        self.making, self.samples, self.groups = making, samples, groups
        self.metric, self.file, self.spreading, self.heard = metric, file, spreading, heard
        self.own: OwnMetric | None = None
        if metric == "recipe" and subject.metric is not None:
            self.own = OwnMetric(subject.metric, Session(making.prepared.path).by_name)

    def measure(self, until: float | None) -> bool:
        """Writes trials until all are there, or the time is up; whether all are."""
        total = 2 * len(self.groups) * (1 if self.own is not None else len(self.samples.held_back))
        for trial in self._trials(until):
            self.file.add(trial)
            self.heard(("count", len(self.file.found), total, "trials", "measuring"))
        return len(self.file.found) >= total

    def _trials(self, until: float | None) -> Iterator[LayerTrial]:
        if self.own is not None:
            scene = self._scene()
            yield from _until(try_by_own_metric(scene, self.groups, self.file.found), until)
        elif self.spreading.alone:
            sliced = slices_of(self.making, 1)
            for number, groups, kinds in self._plan():
                sample = self.samples.held_back[number]
                yield from _until(try_groups(sliced, number, sample, groups, kinds, self.file.found), until)
                if until is not None and time.monotonic() >= until:
                    return
        else:
            tasks = _until(self._tasks(), until)
            for trials in fan_out(run_task, tasks, self.spreading):
                yield from trials

    def _plan(self) -> Iterator[Step]:
        return plan(len(self.samples.held_back), self.groups, lambda: self.file.found, self.metric)

    def _tasks(self) -> Iterator[TrialTask]:
        asked: set[tuple[int, str, str]] = set()
        for number, groups, kinds in self._plan():
            fresh = [g for g in groups if any((number, g.name, kind) not in asked for kind in kinds)]
            asked |= {(number, group.name, kind) for group in fresh for kind in kinds}
            for start in range(0, len(fresh), CHUNK):
                some = tuple(fresh[start : start + CHUNK])
                yield TrialTask(self.making, number, self.samples.held_back[number], some, kinds)

    def _scene(self, samples: int | None = None) -> Scene:
        return Scene(slices_of(self.making, 1), self.samples.held_back[:samples], self.metric, self.own)

    def conclude(self, max_drop: float, finished: bool, folder: Path, started: float) -> Sensitivity:
        """The ranking, and the fewest groups to keep in float by it."""
        ranked = sum_up(self.groups, self.file.found, self.metric)
        scene = self._scene(None if finished else FIRST)
        units = [unit for one in ranked for unit in one.group.units]
        everything = scene.drop(())
        mix = Mix((), everything, 1) if everything <= max_drop else fewest_kept(units, scene.drop, max_drop)
        nodes = [name for unit in units if unit.name in mix.keep for name in unit.nodes]
        return Sensitivity(
            tuple(ranked),
            len(self.groups),
            finished,
            self.metric,
            max_drop,
            everything,
            tuple(nodes),
            mix.drop,
            len(self.file.found),
            time.monotonic() - started,
            folder,
        )


def _until(things: Iterable[Any], until: float | None) -> Iterator[Any]:
    """At least one, however little time there was."""
    for thing in things:
        yield thing
        if until is not None and time.monotonic() >= until:
            return


def _write(result: Sensitivity, source: Path, folder: Path) -> None:
    """Each file whole: written beside and renamed."""
    keep = {
        "model": source.name,
        "sha256": hash_file(source),
        "metric": result.metric,
        "max_drop": result.max_drop,
        "drop_all_quantised": result.all_quantised,
        "drop_without_these": result.drop_without,
        "finished": result.finished,
        "nodes": list(result.do_not_quantize),
        "modules": sorted(
            {
                u.module
                for one in result.ranked
                for u in one.group.units
                if u.module and set(u.nodes) & set(result.do_not_quantize)
            }
        ),
    }
    texts = {
        "ranking.json": json.dumps(result.as_dict(), indent=1) + "\n",
        "do_not_quantize.json": json.dumps(keep, indent=1) + "\n",
        "ranking.svg": draw(result.ranked, result.metric, source.name),
    }
    for name, text in texts.items():
        part = folder / f".{name}.part"
        part.write_text(text)
        os.replace(part, folder / name)
