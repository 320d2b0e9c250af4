"""A wrong file's first wrong node, as a finding. Looked for once, in the file that the result is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fairway.evidence.judge import sample_inputs
from fairway.evidence.lattice import sample
from fairway.findings import Finding
from fairway.ladder.attempt import Workers
from fairway.ladder.climb import Climb, Heard, Settings
from fairway.locate.locate import Location, locate
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

    def work(tell: Any) -> Location | None:
        if settings.remedies:
            subject.model.eval()
        found = [locate(subject, path, one, sample_inputs(subject, one, data), against) for one in failing]
        if not found:
            return None
        # A roomy point tells values apart; the smallest failing one is where people want to look.
        first, last = found[0], found[-1]
        return last if last.value == first.value else first

    got = workers.run(work)
    return [got.value.finding()] if got.status == "done" and got.value is not None else []
