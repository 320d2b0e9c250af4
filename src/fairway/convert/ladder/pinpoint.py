"""A wrong file's first wrong node, as a finding. Looked for once, in the file that the result is about."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from fairway.convert.ladder.climb import Climb, Heard, Settings
from fairway.diagnostics import Finding
from fairway.judge.judge import sample_inputs
from fairway.judge.locate.divergence import Side, parting
from fairway.judge.locate.locate import locate, smallest
from fairway.judge.locate.other_way import other_way
from fairway.model.dims import Point, show
from fairway.model.sample import Sample, sample
from fairway.model.subject import Subject
from fairway.workers.attempt import Workers

SEEDS = (1, 2, 3)
"""Values for each size at which PyTorch's runs are compared: what differs among these hangs on values."""


def pinpoint(
    workers: Workers,
    subject: Subject,
    settings: Settings,
    climbed: Climb,
    data: Sequence[list[torch.Tensor]],
    heard: Heard,
    against: Sequence[str] = (),
) -> list[Finding]:
    """Where the error begins; nothing where that cannot be told, which is no reason to fail."""
    rung = climbed.best
    if rung is None or rung.verdict != "wrong" or rung.captured is None:
        return []
    if rung.evidence is None and not any(f.code == "FW407" for f in rung.findings):
        return []
    heard(("stage", "looking for the first wrong node"))
    failing = rung.evidence.failing if rung.evidence is not None else (sample(subject.example),)
    sides = rung.evidence.sides if rung.evidence is not None else ()
    path = rung.captured.path

    def cause(tell: Any) -> list[Finding]:
        if settings.remedies:
            subject.model.eval()
        with suppress(Exception):  # a model may refuse to run so; then it is not this
            way = other_way(subject, sample_inputs(subject, failing[-1], data))
            if way is not None:
                return [way]
        return _parted(subject, sides, failing[-1])

    def begins(tell: Any) -> list[Finding]:
        if settings.remedies:
            subject.model.eval()
        found = [locate(subject, path, one, sample_inputs(subject, one, data), against) for one in failing]
        best = smallest(found)
        finding = None if best is None else best.finding()
        return [] if finding is None else [finding]

    said: list[Finding] = []
    for work in (cause, begins) if failing else ():
        got = workers.run(work)
        said += got.value if got.status == "done" else []
    known = {_place(finding) for finding in climbed.findings}
    return [finding for finding in said if _place(finding) not in known]


def _place(finding: Finding) -> tuple[str, object, object]:
    where = finding.where
    return (finding.code, where.file, where.line) if where and where.file else (finding.code, None, finding.seen)


def _parted(subject: Subject, sides: Sequence[tuple[Point, Point]], failing: Sample) -> list[Finding]:
    """The lines at which PyTorch's runs on the two sides of a size part, for each size at which right turns wrong."""
    found: dict[tuple[str, str], Finding] = {}
    for pair in sides:
        right, wrong = (
            Side(show(point), [subject.make(point, seed, failing.flavour) for seed in SEEDS]) for point in pair
        )
        with suppress(Exception):  # a point that PyTorch refuses for some values says nothing of lines
            for one in parting(subject, right, wrong):
                found.setdefault((one.code, str(one.where)), one)
    return list(found.values())
