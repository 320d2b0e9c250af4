"""Runs captures at points, and lets the judge compare them with PyTorch."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from fairway.convert.pieces.size_map import Point
from fairway.diagnostics.errors import UserError
from fairway.judge.judge import HOPELESS_RATIO, Judge, Runner, open_runtime
from fairway.judge.sample_result import SampleResult
from fairway.model.sample import Sample, make_sample
from fairway.model.subject import Subject

TRIAL_SEED = 80
"""Seed of the sample at the first point."""
MAX_EXCUSES = 6
"""Differences of one capture that are checked again with other roundings in PyTorch, which takes several runs."""


class SharedJudge(Judge):
    """A judge that runs PyTorch once for all captures."""

    def __init__(self, subject: Subject, run: Runner, output_names: Sequence[str], known: dict[Hashable, Any]) -> None:
        super().__init__(subject, run, output_names)
        self._known = known

    def make_inputs(self, sample: Sample) -> list[torch.Tensor]:
        key = ("inputs", sample)
        if key not in self._known:
            self._known[key] = super().make_inputs(sample)
        tensors: list[torch.Tensor] = self._known[key]
        return tensors

    def _run_eager(self, trial: SampleResult, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        key = ("eager", trial.sample)
        if key not in self._known:
            self._known[key] = (super()._run_eager(trial, tensors), trial.illegal)
        answer: list[torch.Tensor]
        answer, trial.illegal = self._known[key]
        return answer

    def _run_truth(self, tensors: list[torch.Tensor], ours: list[torch.Tensor]) -> list[torch.Tensor] | None:
        key = ("truth", id(tensors))
        if key not in self._known:
            self._known[key] = (super()._run_truth(tensors, ours), self.no_truth)
        truths: list[torch.Tensor] | None
        truths, self.no_truth = self._known[key]
        return truths


def run_trials(
    subject: Subject, paths: Sequence[str], output_names: Sequence[str], points: Sequence[Sequence[Point]]
) -> list[list[bool | None]]:
    """Return for each capture and each of its points true if the capture is right, or None if PyTorch fails there.

    Differences are excused as the judge does it, unless a capture is wrong beyond any rounding.
    """
    known: dict[Hashable, object] = {}
    answers: list[list[bool | None]] = []
    for path, own in zip(paths, points, strict=True):
        try:
            run = open_runtime(path)
        except UserError:  # the runtime refuses this capture; another may serve these points
            answers.append([False] * len(own))
            continue
        judge = SharedJudge(subject, run, output_names, known)
        answers.append(_check_results(judge, [judge.take(make_sample(point, TRIAL_SEED)) for point in own]))
    return answers


def _check_results(judge: Judge, trials: Sequence[SampleResult]) -> list[bool | None]:
    right: list[bool | None] = []
    left = MAX_EXCUSES
    for trial in trials:
        ratio = judge.compute_ratio(trial)
        if trial.illegal is not None or ratio <= 1:
            right.append(None if trial.illegal is not None else True)
            continue
        worth = left > 0 and (trial.difference is not None or ratio <= HOPELESS_RATIO)
        left -= worth
        right.append(worth and judge.excuse(trial))
    return right
