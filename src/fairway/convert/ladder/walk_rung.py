"""One rung: prescribe remedies, capture, judge the candidate, and compare it with a second capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fairway.convert.blocks.repeats import shorten_model
from fairway.convert.ladder.capture import CaptureContext, capture, make_case
from fairway.convert.ladder.capture_pair import CapturePair, CaptureRequest, CaptureWork, compare_captures
from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.ladder.first_look import FirstLook
from fairway.convert.ladder.judge_worker import judge_candidate
from fairway.convert.ladder.prepare_model import prepare_for_capture
from fairway.convert.ladder.prescribe import Prescription, apply_patches, find_matches, prescribe
from fairway.convert.ladder.session import ExportSession
from fairway.convert.ladder.weigh_evidence import report_name_clash, weigh_evidence
from fairway.convert.pieces.capture_pieces import PiecewiseCapture
from fairway.convert.types import SOURCE_REMEDIES, Candidate, PlannedRung, Rung
from fairway.diagnostics import Code, Finding
from fairway.judge.evidence import Differential
from fairway.judge.samples import choose_examples, enlarge_examples
from fairway.model.dims import Point
from fairway.record.progress import EventSink
from fairway.workers.attempt import Outcome
from fairway.workers.workshop import place_beside

LOOP_EXAMPLE_SIZE = 4
"""The least size from which rewritten loops are exported. Their first step may be taken out, and exporters take what is
left of two steps for a constant."""


def walk_rung(session: ExportSession, step: PlannedRung, look: FirstLook, earlier: Sequence[Rung]) -> Rung:
    """Carry out a planned rung. `earlier` are the rungs before it, whose findings remedies may look at."""
    return _RungWalk(session, step, look, tuple(earlier)).walk()


@dataclass(frozen=True)
class _RungWalk:
    session: ExportSession
    step: PlannedRung
    look: FirstLook
    earlier: tuple[Rung, ...]

    def walk(self) -> Rung:
        prescription, refused = self._prescribe()
        tried = tuple(name for name, _ in prescription.chosen)
        rung = Rung(self.step, self.step.route, refused=refused, tried=tried)
        if self.step.needs and not any(name in self.step.needs for name in tried):
            return rung
        captures = self._start_captures(prescription)
        outcome = captures.first()
        rung = replace(rung, seconds=outcome.seconds, peak_bytes=outcome.peak_bytes)
        if outcome.status != "done":
            captures.drop()
            return replace(rung, findings=tuple(diagnose(outcome, self.look.suspects)))
        rung = self._add_candidate(rung, outcome)
        if self.session.settings.level == "none":
            return self._leave_unjudged(rung)
        return self._compare(self._judge(rung), captures)

    @cached_property
    def _context(self) -> CaptureContext:
        findings = tuple(finding for rung in self.earlier for finding in rung.findings)
        return CaptureContext(self.step.route, findings, self.look.preflight.output_names, self.look.live)

    def _prescribe(self) -> tuple[Prescription, tuple[tuple[str, str], ...]]:
        """Choose the remedies in a separate process. Also return the refused ones, each with its reason."""
        if not self.session.settings.remedies:
            return Prescription(), ()
        subject = self.session.subject

        def choose_remedies(on_event: EventSink) -> Prescription:
            prepare_for_capture(subject, self.look.preflight)
            shorten_model(subject.model, self.step.repeats)
            with apply_patches(subject.model, subject.patches):
                return prescribe(subject, self.step, self._context)

        outcome = self.session.workers.run(choose_remedies)
        if outcome.status != "done":
            reason = outcome.failure.message if outcome.failure else outcome.status
            return Prescription(), (("all remedies", f"looking for them failed: {reason}"),)
        prescription: Prescription = outcome.value
        refused = ((name, f"{reason} ({where})" if where else reason) for name, reason, where in prescription.refused)
        return prescription, tuple(refused)

    def _start_captures(self, prescription: Prescription) -> PiecewiseCapture | CapturePair:
        session, subject = self.session, self.session.subject

        def make_work(point: Point, seed: int, path: Path) -> CaptureWork:
            def capture_at_point(on_event: EventSink) -> Candidate:
                prepare_for_capture(subject, self.look.preflight)
                cut = shorten_model(subject.model, self.step.repeats)
                with apply_patches(subject.model, subject.patches):
                    case, tensors = make_case(subject, self._context, point, seed, cut)
                    matches = find_matches(case, prescription)
                    return capture(subject, case, matches, tensors, path, session.settings.weights)

            return capture_at_point

        wrong_points = tuple(map(dict, self.step.wrong_points))
        output_names = self.look.preflight.output_names
        request = CaptureRequest(session, make_work, self._make_path, output_names, wrong_points)
        if self.step.route.pieces:
            return PiecewiseCapture(request)
        points = choose_examples(subject, dict(self.step.wrong_at))
        if any(name in SOURCE_REMEDIES for name, _ in prescription.chosen):
            points = enlarge_examples(subject, points, LOOP_EXAMPLE_SIZE)
        return CapturePair(request, points, self._compares_captures)

    def _make_path(self, name: str) -> Path:
        file, folder = f"{len(self.earlier)}-{name}", self.session.folder
        return place_beside(folder, file) if self.session.settings.weights == "link" else folder / file

    @property
    def _compares_captures(self) -> bool:
        return self.session.settings.level not in ("none", "quick")

    def _add_candidate(self, rung: Rung, outcome: Outcome) -> Rung:
        candidate: Candidate = outcome.value
        route = rung.route.with_remedies(*(name for name, _ in candidate.remedies))
        return replace(
            rung, route=route, candidate=candidate, remedies=candidate.remedies, export_seconds=outcome.seconds
        )

    def _leave_unjudged(self, rung: Rung) -> Rung:
        assert rung.candidate is not None
        clash = report_name_clash(rung.candidate)
        findings = (Finding(Code.NOT_LOOKED_AT, "level none"), *clash)
        return replace(rung, verdict="wrong" if clash else "unproven", findings=findings)

    def _judge(self, rung: Rung) -> Rung:
        assert rung.candidate is not None
        outcome = judge_candidate(self.session, rung.candidate)
        verdict, evidence, findings = weigh_evidence(outcome, rung.candidate, self.look.suspects)
        return replace(
            rung,
            verdict=verdict,
            evidence=evidence,
            findings=findings,
            seconds=rung.seconds + outcome.seconds,
            peak_bytes=max(rung.peak_bytes, outcome.peak_bytes),
        )

    def _compare(self, rung: Rung, captures: PiecewiseCapture | CapturePair) -> Rung:
        """Compare a verified candidate with the second capture; drop that capture if the candidate is not verified."""
        if not self._compares_captures:
            return rung
        if rung.verdict != "verified":
            captures.drop()
            if rung.evidence is None:
                return rung
            differential = Differential(False, note=f"not needed, the file is {rung.verdict} already")
            return replace(rung, evidence=replace(rung.evidence, differential=differential))
        assert rung.candidate is not None
        assert rung.evidence is not None
        other = captures.second()
        differential, findings = compare_captures(self.session, rung.candidate, other, captures.points)
        doubtful = any(finding.severity == "error" or finding.code == Code.EVIDENCE_INCOMPLETE for finding in findings)
        return replace(
            rung,
            verdict="unproven" if doubtful else "verified",
            evidence=replace(rung.evidence, differential=differential),
            findings=(*rung.findings, *findings),
        )
