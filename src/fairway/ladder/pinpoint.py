"""A wrong file's first wrong node, as a finding. Looked for once, in the file that the result is about."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from fairway.evidence.judge import sample_inputs
from fairway.evidence.lattice import sample
from fairway.findings import Finding
from fairway.ladder.attempt import Workers
from fairway.ladder.climb import Climb, Heard, Settings
from fairway.locate.locate import locate, smallest
from fairway.locate.other_way import other_way
from fairway.subject.subject import Subject


def pinpoint(
    workers: Workers, subject: Subject, settings: Settings, climbed: Climb, data: Sequence[list[torch.Tensor]],
    heard: Heard, against: Sequence[str] = (),
) -> list[Finding]:  # fmt: skip
    """Where the error begins; nothing where that cannot be told, which is no reason to fail."""
    rung = climbed.best
    if rung is None or rung.verdict != "wrong" or rung.captured is None:
        return []
    if rung.evidence is None and not any(f.code == "FW407" for f in rung.findings):
        return []
    heard(("stage", "looking for the first wrong node"))
    failing = rung.evidence.failing if rung.evidence is not None else (sample(subject.example),)
    path = rung.captured.path

    def work(tell: Any) -> list[Finding]:
        if settings.remedies:
            subject.model.eval()
        way = None
        with suppress(Exception):  # a model may refuse to run so; then it is not this
            way = other_way(subject, sample_inputs(subject, failing[-1], data)) if failing else None
        found = [locate(subject, path, one, sample_inputs(subject, one, data), against) for one in failing]
        best = smallest(found)
        return [one for one in (way, None if best is None else best.finding()) if one is not None]

    got = workers.run(work)
    found: list[Finding] = got.value if got.status == "done" else []
    return found
