"""Judges many files of one model as `fairway.verify` does, and runs PyTorch once for each sample.

What does not depend on the file is done once: the study of the model, PyTorch's answer and its float64 truth at each
sample, what the yardstick learns from them, and PyTorch's answers with moved roundings. A file then runs at the same
samples, the cheapest first, and is held to the yardstick that all samples with a truth have taught. The others teach
nothing, and PyTorch runs there when the first file gets so far. The first sample at which a file is wrong, and which no
excuse explains, proves it wrong and ends the judgment. So does a weight whose numbers differ from the model's. A file
without such a proof is left to `fairway.verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import onnx_ir as ir
import torch

from fairway.convert.export import make_judging_settings, preload_modules
from fairway.convert.ladder.prepare_model import prepare_for_judging
from fairway.convert.ladder.session import ExportSession
from fairway.convert.ladder.study_worker import study_subject
from fairway.diagnostics.errors import UserError
from fairway.judge import judge as judge_module
from fairway.judge.answers import (
    RecordedAnswers,
    choose_truth_samples,
    estimate_flops,
    merge_answers,
    record_answers,
    share_samples,
)
from fairway.judge.cells import Cells
from fairway.judge.evidence import FileFacts
from fairway.judge.judge import Judge, make_sample_inputs, open_runtime
from fairway.judge.runtimes.eager import to_array
from fairway.judge.sample_result import SampleResult
from fairway.judge.samples import list_samples
from fairway.judge.second_look import MAX_POOLED_ELEMENTS, run_moved
from fairway.judge.weight_comparison import ModelTensors, compare_weights
from fairway.judge.yardstick import Array, Yardstick
from fairway.model.onnx_file import find_fixed_dims, open_model
from fairway.model.sample import Sample
from fairway.model.subject import Subject
from fairway.record.progress import EventSink, ignore_event
from fairway.workers.attempt import Limits, Workers

LEVEL = "standard"
WORKER_SECONDS_LIMIT = 3600.0

MovedRun = list[list[Array]]


@dataclass(frozen=True)
class Proof:
    """The first proof that a file is wrong."""

    verdict: str
    by: str
    samples: int = 0
    """Samples that were run."""
    ratio: float | None = None
    """The file's error at the last of them, in units of what is allowed; None without a number."""


class _TaughtYardstick(Yardstick):
    """A yardstick that has learned from every sample already."""

    def learn(self, cells: Cells, largest: float) -> None:
        pass


class SharedJudge:
    """Everything that the judgments of one model's files share."""

    def __init__(self, subject: Subject, right: Path, folder: Path) -> None:
        self._folder = folder / "answers"
        settings = make_judging_settings(LEVEL, Limits(WORKER_SECONDS_LIMIT, 0))
        preload_modules()
        with Workers(settings.limits) as workers:
            session = ExportSession(workers, subject, settings, folder)
            self.subject = study_subject(session)
            samples = self._list_samples(right)
            chosen = choose_truth_samples(self.subject, samples)
            teaching = [sample for sample in samples if sample in chosen]
            jobs = [
                workers.start(self._make_recording(samples, share)) for share in share_samples(self.subject, teaching)
            ]
            outcomes = [workers.wait(job) for job in jobs]
            assert all(outcome.status == "done" for outcome in outcomes), [outcome.failure for outcome in outcomes]
        self._answers = merge_answers([outcome.value for outcome in outcomes])
        assert self._answers.no_truth is None, self._answers.no_truth
        prepare_for_judging(self.subject, True)
        self._weights = ModelTensors(self.subject.model)
        self._output_names = tuple(value.name for value in open_model(right, self.subject).outputs)
        self._taught: dict[tuple[Sample, ...], dict[tuple[str, str], Yardstick]] = {}
        self._moved_runs: dict[tuple[Sample, int, float], MovedRun] = {}

    def find_proof(self, path: Path) -> Proof | None:
        """Return the first proof that a file is wrong, or None if there is none."""
        try:
            header = open_model(path, self.subject)
            run = open_runtime(str(path), threads=0)
        except UserError as error:
            return Proof("refused", error.finding.code)
        if find_fixed_dims(header, self.subject):
            return Proof("wrong", "fixed dims")
        altered = compare_weights(ir.load(path), self._weights)
        if any(finding.severity == "error" for finding in altered):
            return Proof("wrong", "weights")
        samples = self._list_samples(path)
        self._record(samples, choose_truth_samples(self.subject, samples))
        judge = Judge(self.subject, run, self._output_names, answers=self._answers)
        judge.yardsticks = dict(self._teach(samples))
        for number, sample in enumerate(sorted(samples, key=lambda s: estimate_flops(self.subject, s)), 1):
            self._record(samples, [sample])
            judge.answers = self._answers
            trial = judge.take(sample)
            if trial.illegal is None and judge.compute_ratio(trial) > 1 and self._is_proof(judge, trial):
                ratio = judge.compute_ratio(trial)
                return Proof("wrong", "samples", number, None if ratio == float("inf") else float(f"{ratio:.4g}"))
        return None

    def _is_proof(self, judge: Judge, trial: SampleResult) -> bool:
        """Return whether nothing excuses a trial, also not the decisions of other samples."""

        def run_once(subject: Subject, tensors: Sequence[torch.Tensor], seed: int, times: float = 1.0) -> MovedRun:
            key = trial.sample, seed, times
            if key not in self._moved_runs:
                self._moved_runs[key] = run_moved(subject, tensors, seed, times)
            return self._moved_runs[key]

        with patch.object(judge_module, "run_moved", run_once):
            if judge.excuse(trial):
                return False
        wrong = [count for count in trial.settled.values() if count.ratio > 1]
        return not wrong or any(count.theirs > MAX_POOLED_ELEMENTS for count in wrong)

    def _list_samples(self, path: Path) -> list[Sample]:
        return list_samples(self.subject, str(path), LEVEL, {}, (), FileFacts())

    def _make_recording(
        self, samples: Sequence[Sample], share: Sequence[Sample]
    ) -> Callable[[EventSink], RecordedAnswers]:
        def record(on_event: EventSink) -> RecordedAnswers:
            prepare_for_judging(self.subject, True)
            return record_answers(self.subject, samples, share, self._make_inputs, self._folder, on_event)

        return record

    def _make_inputs(self, sample: Sample) -> list[torch.Tensor]:
        return make_sample_inputs(self.subject, sample, ())

    def _record(self, samples: Sequence[Sample], wanted: Iterable[Sample]) -> None:
        """Record PyTorch's answers at those of the `wanted` samples at which they are not known."""
        missing = [sample for sample in wanted if sample not in self._answers.done]
        if missing:
            every = tuple(dict.fromkeys([*self._answers.samples, *samples]))
            more = self._make_recording(every, missing)(ignore_event)
            self._answers = merge_answers([replace(self._answers, samples=every), more])

    def _teach(self, samples: Sequence[Sample]) -> dict[tuple[str, str], Yardstick]:
        """Return the yardsticks after all these samples. PyTorch's own errors do not depend on the file."""
        key = tuple(samples)
        if key not in self._taught:
            ours: list[Array] = []
            teacher = Judge(self.subject, lambda names, tensors: ours, self._output_names, answers=self._answers)
            for sample in samples:
                recorded = self._answers.find(sample) if sample in self._answers.truths else None
                if recorded is not None:
                    ours[:] = [to_array(tensor) for tensor in recorded[0]]
                    teacher.take(sample)
            self._taught[key] = {
                place: _TaughtYardstick(known.dtype, known.truthful, known.cells, known.largest)
                for place, known in teacher.yardsticks.items()
            }
        return self._taught[key]
