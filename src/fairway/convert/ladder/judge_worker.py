"""The judge at work, in a process of its own; before it PyTorch in another, where the model is large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fairway.convert.ladder.cache_warmup import warm_up
from fairway.convert.ladder.capture import Captured
from fairway.convert.ladder.preflight import Preflight
from fairway.judge.answers import RecordedAnswers, answer, merge, needs_answers, share_out
from fairway.judge.evidence import Evidence, FileFacts
from fairway.judge.gather import gather
from fairway.judge.judge import sample_inputs
from fairway.judge.lattice import Level
from fairway.judge.samples import every_sample
from fairway.model.sample import Sample
from fairway.model.subject import Subject
from fairway.workers.attempt import Outcome, Workers

Heard = Callable[[Any], None]


def judged_apart(
    workers: Workers,
    subject: Subject,
    captured: Captured,
    level: Level,
    remedies: bool,
    data: Sequence[list[torch.Tensor]],
    folder: Path,
    heard: Heard,
) -> Outcome:
    """The evidence on one file. PyTorch's answers come first where the model is large, so that it is in memory once."""
    path, edges, facts = captured.path, captured.edges, facts_of(captured)
    samples = every_sample(subject, path, level, edges, data, facts)
    answers: RecordedAnswers | None = None
    before: list[Outcome] = []
    if needs_answers(subject, samples):
        before = _answered(workers, subject, samples, remedies, data, folder, heard)
        failed = next((one for one in before if one.status != "done"), None)
        if failed is not None:
            return failed
        answers = merge([one.value for one in before])

    def judge(tell: Heard) -> Evidence:
        settle(subject, remedies)
        return gather(subject, path, captured.output_names, level, edges, data, tell, answers, facts)

    judged = workers.run(judge, heard)
    seconds = judged.seconds + max((one.seconds for one in before), default=0.0)
    peak = max(judged.peak_bytes, sum(one.peak_bytes for one in before))
    return replace(judged, seconds=seconds, peak_bytes=peak)


def _answered(
    workers: Workers,
    subject: Subject,
    samples: Sequence[Sample],
    remedies: bool,
    data: Sequence[list[torch.Tensor]],
    folder: Path,
    heard: Heard,
) -> list[Outcome]:
    """Have PyTorch's answers written down, by two processes if the model is not too large for that."""

    def work(mine: Sequence[Sample]) -> Callable[[Heard], RecordedAnswers]:
        def prepare(tell: Heard) -> RecordedAnswers:
            settle(subject, remedies)
            return answer(subject, samples, mine, lambda s: sample_inputs(subject, s, data), folder / "answers", tell)

        return prepare

    jobs = [workers.start(work(part), heard) for part in share_out(subject, samples)]
    return [workers.wait(job) for job in jobs]


def facts_of(captured: Captured) -> FileFacts:
    """Return what the judge needs to know about a candidate."""
    because = "a trace writes no guards down" if captured.guards is None else ""
    return FileFacts(
        captured.guards,
        captured.sampled_because or because,
        captured.one_sided,
        frozenset(captured.decided),
        captured.constant,
        len(captured.pieces),
        captured.sides,
    )


def settle(subject: Subject, remedies: bool) -> None:
    """With remedies on, a model left in training mode is exported and judged in eval mode, and the finding says so.

    A cache that grows is filled, as in every process that captures or judges.
    """
    if remedies:
        subject.model.eval()
    warm_up(subject)


def settle_for_capture(subject: Subject, preflight: Preflight) -> None:
    """Where the mode was seen to make no difference, it is no defect either; where it does, a remedy sees it."""
    if not any(f.code == "FW202" for f in preflight.findings):
        subject.model.eval()
    warm_up(subject)
