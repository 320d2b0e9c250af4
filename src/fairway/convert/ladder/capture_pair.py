"""The captures of one rung: the candidate, and a second capture from another example to compare it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.ladder.prepare_model import prepare_for_judging
from fairway.convert.ladder.session import ExportSession
from fairway.convert.types import Candidate
from fairway.diagnostics import Code, Finding
from fairway.judge.differential import BakedConstant, compare_exports
from fairway.judge.evidence import Differential
from fairway.judge.judge import Judge, open_runtime
from fairway.model.dims import Point
from fairway.model.sample import make_sample
from fairway.record.progress import EventSink
from fairway.workers.attempt import Outcome, WorkerJob

CaptureWork: TypeAlias = Callable[[EventSink], Candidate]
MAX_BAKED_FINDINGS = 5


@dataclass(frozen=True)
class CaptureRequest:
    """The rung's part of every capture that is made for it."""

    session: ExportSession
    make_work: Callable[[Point, int, Path], CaptureWork]
    """Returns work that captures at a point, with values drawn from a seed, into a file."""
    make_path: Callable[[str], Path]
    """Returns the path for a file of this name."""
    output_names: tuple[str, ...]
    wrong_points: tuple[Point, ...] = ()
    """Points at which an earlier file of several captures was wrong."""


class CapturePair:
    """One capture, and on request a second one that runs at the same time."""

    def __init__(self, request: CaptureRequest, points: Sequence[Point], twice: bool) -> None:
        names = ("first.onnx", "second.onnx")[: 1 + twice]
        self.points = points
        self._workers = request.session.workers
        self._jobs: list[WorkerJob] = [
            self._workers.start(request.make_work(points[i], 1 + i, request.make_path(name)))
            for i, name in enumerate(names)
        ]

    def first(self) -> Outcome:
        return self._workers.wait(self._jobs[0])

    def second(self) -> Outcome:
        return self._workers.wait(self._jobs[1])

    def drop(self) -> None:
        """End the second capture, which is not needed."""
        for job in self._jobs[1:]:
            self._workers.drop(job)


def compare_captures(
    session: ExportSession, candidate: Candidate, other: Outcome, points: Sequence[Point]
) -> tuple[Differential, list[Finding]]:
    """Return the differences between a candidate and a second capture, and findings if they do harm."""
    subject = session.subject
    if other.status != "done":
        finding = diagnose(other, ())[0]
        return _report_no_comparison(
            f"the export from a second example failed: {finding.title.lower()}: {finding.seen}"
        )

    def compare(on_event: EventSink) -> tuple[list[BakedConstant], bool]:
        baked = compare_exports(candidate.path, other.value.path)
        if not baked:
            return [], True
        prepare_for_judging(subject, session.settings.remedies)
        judge = Judge(subject, open_runtime(other.value.path), candidate.output_names)
        low = {dim.name: dim.sizes[0] for dim in subject.domain.dims}
        for i, point in enumerate((*points, low)):
            judge.take(make_sample(point, 21 + i))
        return baked, not judge.find_failures()

    outcome = session.workers.run(compare)
    if outcome.status != "done":
        return _report_no_comparison(f"comparing the two exports failed: {diagnose(outcome, ())[0].seen}")
    baked, harmless = outcome.value
    differential = Differential(True, not baked, bool(baked) and harmless, tuple(map(str, baked)))
    if not baked or harmless:
        return differential, []
    return differential, [
        Finding(Code.CONSTANT_FROM_EXAMPLE, str(value), where=value.where) for value in baked[:MAX_BAKED_FINDINGS]
    ]


def _report_no_comparison(note: str) -> tuple[Differential, list[Finding]]:
    return Differential(done=False, note=note), [Finding(Code.EVIDENCE_INCOMPLETE, note)]
