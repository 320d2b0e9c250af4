"""Judges a candidate in a separate process. PyTorch's answers for a large model come from another process before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fairway.convert.ladder.prepare_model import prepare_for_judging
from fairway.convert.ladder.session import ExportSession
from fairway.convert.types import Candidate
from fairway.judge.answers import RecordedAnswers, merge_answers, needs_answers, record_answers, share_samples
from fairway.judge.evidence import Evidence, FileFacts
from fairway.judge.gather import JudgeRequest, gather_evidence
from fairway.judge.judge import make_sample_inputs
from fairway.judge.samples import list_samples
from fairway.model.sample import Sample
from fairway.record.progress import EventSink
from fairway.workers.attempt import Outcome


def judge_candidate(session: ExportSession, candidate: Candidate) -> Outcome:
    """Gather the evidence on a candidate.

    If the model is large, PyTorch's answers are recorded first, so that the model and the file are never in memory
    together.
    """
    subject, settings, facts = session.subject, session.settings, describe_candidate(candidate)
    path, edges, data = candidate.path, candidate.edges, session.data
    samples = list_samples(subject, path, settings.level, edges, data, facts)
    answers: RecordedAnswers | None = None
    recordings: list[Outcome] = []
    if needs_answers(subject, samples):
        recordings = _record_answers(session, samples)
        failed = next((outcome for outcome in recordings if outcome.status != "done"), None)
        if failed is not None:
            return failed
        answers = merge_answers([outcome.value for outcome in recordings])

    def judge(on_event: EventSink) -> Evidence:
        prepare_for_judging(subject, settings.remedies)
        request = JudgeRequest(path, candidate.output_names, settings.level, edges, data, answers, facts)
        return gather_evidence(subject, request, on_event)

    judged = session.workers.run(judge, session.on_event)
    seconds = judged.seconds + max((outcome.seconds for outcome in recordings), default=0.0)
    peak_bytes = max(judged.peak_bytes, sum(outcome.peak_bytes for outcome in recordings))
    return replace(judged, seconds=seconds, peak_bytes=peak_bytes)


def _record_answers(session: ExportSession, samples: Sequence[Sample]) -> list[Outcome]:
    """Record PyTorch's answers, in two processes if the model is small enough for that."""
    subject = session.subject

    def make_work(share: Sequence[Sample]) -> Callable[[EventSink], RecordedAnswers]:
        def record(on_event: EventSink) -> RecordedAnswers:
            prepare_for_judging(subject, session.settings.remedies)
            folder = session.folder / "answers"
            return record_answers(
                subject, samples, share, lambda s: make_sample_inputs(subject, s, session.data), folder, on_event
            )

        return record

    jobs = [session.workers.start(make_work(share), session.on_event) for share in share_samples(subject, samples)]
    return [session.workers.wait(job) for job in jobs]


def describe_candidate(candidate: Candidate) -> FileFacts:
    """Return the facts about a candidate that the judge needs."""
    because = "a trace writes no guards down" if candidate.guards is None else ""
    is_plain_trace = candidate.one_sided and not candidate.sampled_because and not candidate.rewritten
    return FileFacts(
        guards=candidate.guards,
        sampled_because=candidate.sampled_because or because,
        one_sided=candidate.one_sided,
        keeps_reads=is_plain_trace,
        decided=frozenset(candidate.decided),
        constant=candidate.constant,
        pieces=len(candidate.pieces),
        sides=candidate.sides,
    )
