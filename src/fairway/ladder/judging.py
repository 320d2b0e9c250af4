"""The judge at work, in a process of its own; before it PyTorch in another, where the model is large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fairway.evidence.answers import Answers, answer, is_large
from fairway.evidence.evidence import Evidence
from fairway.evidence.gather import every_sample, gather
from fairway.evidence.judge import sample_inputs
from fairway.evidence.lattice import Level
from fairway.ladder.attempt import Outcome, Workers
from fairway.ladder.capture import Captured
from fairway.subject.subject import Subject

Heard = Callable[[Any], None]


def judged_apart(
    workers: Workers, subject: Subject, captured: Captured, level: Level, remedies: bool,
    data: Sequence[list[torch.Tensor]], folder: Path, heard: Heard,
) -> Outcome:  # fmt: skip
    """The evidence on one file. PyTorch's answers come first where the model is large, so that it is in memory once."""
    path, edges = captured.path, captured.edges
    answers: Answers | None = None
    before: Outcome | None = None
    if is_large(subject.model):

        def prepare(tell: Heard) -> Answers:
            settle(subject, remedies)
            samples = every_sample(subject, path, level, edges, data)
            return answer(subject, samples, lambda s: sample_inputs(subject, s, data), folder / "answers", tell)

        before = workers.run(prepare, heard)
        if before.status != "done":
            return before
        answers = before.value

    def judge(tell: Heard) -> Evidence:
        settle(subject, remedies)
        return gather(subject, path, captured.output_names, level, edges, data, tell, answers)

    judged = workers.run(judge, heard)
    if before is None:
        return judged
    peak = max(before.peak_bytes, judged.peak_bytes)
    return replace(judged, seconds=before.seconds + judged.seconds, peak_bytes=peak)


def settle(subject: Subject, remedies: bool) -> None:
    """With remedies on, a model left in training mode is exported and judged in eval mode, and the finding says so."""
    if remedies:
        subject.model.eval()
