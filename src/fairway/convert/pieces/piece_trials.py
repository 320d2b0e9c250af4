"""Which captures serve which points: each is run there, and the judge compares it with PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fairway.convert.pieces.size_map import Point
from fairway.diagnostics.errors import UserError
from fairway.judge.judge import HOPELESS, Judge, Runner, open_runtime
from fairway.judge.sample_result import SampleResult
from fairway.model.sample import Sample, sample
from fairway.model.subject import Subject

TRIAL_SEED = 80
"""Seed of the sample at the first point."""
EXCUSES_SOUGHT = 6
"""Differences of one capture that are looked at again with PyTorch's roundings moved, which takes several runs."""


class SharedJudge(Judge):
    """A judge that asks PyTorch once for all captures."""

    def __init__(self, subject: Subject, run: Runner, output_names: Sequence[str], known: dict[Any, Any]) -> None:
        super().__init__(subject, run, output_names)
        self._known = known

    def inputs(self, sample: Sample) -> list[torch.Tensor]:
        key = ("inputs", sample)
        if key not in self._known:
            self._known[key] = super().inputs(sample)
        tensors: list[torch.Tensor] = self._known[key]
        return tensors

    def _eager(self, trial: SampleResult, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        key = ("eager", trial.sample)
        if key not in self._known:
            self._known[key] = (super()._eager(trial, tensors), trial.illegal)
        answer: list[torch.Tensor]
        answer, trial.illegal = self._known[key]
        return answer

    def _truth(self, tensors: list[torch.Tensor], ours: list[torch.Tensor]) -> list[torch.Tensor] | None:
        key = ("truth", id(tensors))
        if key not in self._known:
            self._known[key] = (super()._truth(tensors, ours), self.no_truth)
        truths: list[torch.Tensor] | None
        truths, self.no_truth = self._known[key]
        return truths


def run_trials(
    subject: Subject, paths: Sequence[str], output_names: Sequence[str], points: Sequence[Sequence[Point]]
) -> list[list[bool | None]]:
    """Return for each capture and each of its points whether the capture is right; None where PyTorch refuses.

    A difference is excused as the judge does it, but for a capture that is wrong beyond any rounding.
    """
    known: dict[Any, Any] = {}
    answers: list[list[bool | None]] = []
    for path, mine in zip(paths, points, strict=True):
        try:
            run = open_runtime(path)
        except UserError:  # the runtime refuses this capture; another may serve these points
            answers.append([False] * len(mine))
            continue
        judge = SharedJudge(subject, run, output_names, known)
        answers.append(_right(judge, [judge.take(sample(point, TRIAL_SEED)) for point in mine]))
    return answers


def _right(judge: Judge, trials: Sequence[SampleResult]) -> list[bool | None]:
    right: list[bool | None] = []
    left = EXCUSES_SOUGHT
    for trial in trials:
        ratio = judge.ratio(trial)
        if trial.illegal is not None or ratio <= 1:
            right.append(None if trial.illegal is not None else True)
            continue
        worth = left > 0 and (trial.difference is not None or ratio <= HOPELESS)
        left -= worth
        right.append(worth and judge.excuse(trial))
    return right
