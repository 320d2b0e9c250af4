"""The captures of one rung: the candidate's, and the second from another example that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.convert.ladder.capture import Captured
from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.ladder.judge_worker import settle
from fairway.diagnostics import Finding
from fairway.judge.differential import compare_exports
from fairway.judge.evidence import Differential
from fairway.judge.judge import Judge, open_runtime
from fairway.model.dims import Point
from fairway.model.sample import sample
from fairway.model.subject import Subject
from fairway.workers.attempt import Outcome, Work, WorkerJob, Workers


@dataclass(frozen=True)
class Request:
    """What is needed to make captures, from the rung that asks for them."""

    workers: Workers
    subject: Subject
    export: Callable[[Point, int, Path], Work]
    """Work that captures at a point, with values of a seed, into a file."""
    place: Callable[[str], Path]
    """Where a file with this name goes."""
    output_names: tuple[str, ...]
    remedies: bool
    heard: Callable[[Any], None]
    points: tuple[Point, ...] = ()
    """Points at which an earlier file of several captures was wrong."""


class Captures:
    """One capture, and a second one beside it if asked for."""

    def __init__(self, request: Request, points: Sequence[Point], twice: bool) -> None:
        names = ("first.onnx", "second.onnx")[: 1 + twice]
        self.points = points
        self._workers = request.workers
        self._jobs: list[WorkerJob] = [
            request.workers.start(request.export(points[i], 1 + i, request.place(name))) for i, name in enumerate(names)
        ]

    def first(self) -> Outcome:
        return self._workers.wait(self._jobs[0])

    def second(self) -> Outcome:
        return self._workers.wait(self._jobs[1])

    def drop(self) -> None:
        """End the second one, which is not needed."""
        for job in self._jobs[1:]:
            self._workers.drop(job)


def compare_captures(
    workers: Workers, subject: Subject, remedies: bool, captured: Captured, other: Outcome, points: Sequence[Any]
) -> tuple[Differential, list[Finding]]:
    """The second leg: what differs between two exports, and whether it does harm."""
    if other.status != "done":
        said = diagnose(other, ())[0]
        note = f"the export from a second example failed: {said.title.lower()}: {said.seen}"
        return Differential(done=False, note=note), [Finding("FW504", note)]

    def work(tell: Any) -> tuple[list[Any], bool]:
        baked = compare_exports(captured.path, other.value.path)
        if not baked:
            return [], True
        settle(subject, remedies)
        judge = Judge(subject, open_runtime(other.value.path), captured.output_names)
        low = {d.name: d.sizes[0] for d in subject.domain.dims}
        for i, point in enumerate((*points, low)):
            judge.take(sample(point, 21 + i))
        return baked, not judge.failures()

    outcome = workers.run(work)
    if outcome.status != "done":
        said = diagnose(outcome, ())[0]
        note = f"comparing the two exports failed: {said.seen}"
        return Differential(done=False, note=note), [Finding("FW504", note)]
    baked, harmless = outcome.value
    leg = Differential(True, not baked, bool(baked) and harmless, tuple(map(str, baked)))
    if not baked or harmless:
        return leg, []
    return leg, [Finding("FW406", str(b), where=b.where) for b in baked[:5]]
