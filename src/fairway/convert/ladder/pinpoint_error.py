"""Findings on where a wrong file's error begins. Only the file of the result is searched, once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fairway.convert.ladder.prepare_model import prepare_for_judging
from fairway.convert.ladder.session import ExportSession
from fairway.convert.types import Climb
from fairway.diagnostics import Code, Finding
from fairway.judge.judge import make_sample_inputs
from fairway.judge.locate.divergence import SizeSide, find_divergence
from fairway.judge.locate.locate import choose_location, locate_error
from fairway.judge.locate.other_way import find_other_way
from fairway.model.dims import Point, describe_point
from fairway.model.sample import Sample, make_sample
from fairway.model.subject import Subject
from fairway.record.progress import EventSink, StageStarted

SEEDS = (1, 2, 3)
"""Seeds of the values for each size at which PyTorch's runs are compared. A line that differs among them depends on
values, not on sizes."""


def pinpoint_error(session: ExportSession, climbed: Climb, right_files: Sequence[str] = ()) -> list[Finding]:
    """Return findings on where the error of a wrong file begins, or none if that cannot be determined.

    `right_files` are compared with the wrong one.
    """
    subject, data, remedies = session.subject, session.data, session.settings.remedies
    rung = climbed.best
    if rung is None or rung.verdict != "wrong" or rung.candidate is None:
        return []
    if rung.evidence is None and not any(f.code == Code.RUNTIME_REFUSES for f in rung.findings):
        return []
    session.on_event(StageStarted("looking for the first wrong node"))
    failing = rung.evidence.failing if rung.evidence is not None else (make_sample(subject.example),)
    sides = rung.evidence.sides if rung.evidence is not None else ()
    path = rung.candidate.path

    def find_cause(on_event: EventSink) -> list[Finding]:
        prepare_for_judging(subject, remedies)
        with suppress(Exception):  # a model may refuse to run this way; then this is not the cause
            way = find_other_way(subject, make_sample_inputs(subject, failing[-1], data))
            if way is not None:
                return [way]
        return _find_diverging_lines(subject, sides, failing[-1])

    def find_first_node(on_event: EventSink) -> list[Finding]:
        prepare_for_judging(subject, remedies)
        locations = [
            locate_error(subject, path, sample, make_sample_inputs(subject, sample, data), right_files)
            for sample in failing
        ]
        best = choose_location(locations)
        finding = None if best is None else best.make_finding()
        return [] if finding is None else [finding]

    findings: list[Finding] = []
    for work in (find_cause, find_first_node) if failing else ():
        outcome = session.workers.run(work)
        findings += outcome.value if outcome.status == "done" else []
    known = {_get_place(finding) for finding in climbed.findings}
    return [finding for finding in findings if _get_place(finding) not in known]


def _get_place(finding: Finding) -> tuple[str, object, object]:
    where = finding.where
    return (finding.code, where.file, where.line) if where and where.file else (finding.code, None, finding.seen)


def _find_diverging_lines(subject: Subject, sides: Sequence[tuple[Point, Point]], failing: Sample) -> list[Finding]:
    """Return the lines at which PyTorch takes different branches for a right size and the wrong size next to it."""
    findings: dict[tuple[str, str], Finding] = {}
    for pair in sides:
        right, wrong = (
            SizeSide(describe_point(point), [subject.make(point, seed, failing.flavor) for seed in SEEDS])
            for point in pair
        )
        with suppress(Exception):  # PyTorch may refuse a point for some values; then no lines can be compared
            for finding in find_divergence(subject, right, wrong):
                findings.setdefault((finding.code, str(finding.where)), finding)
    return list(findings.values())
