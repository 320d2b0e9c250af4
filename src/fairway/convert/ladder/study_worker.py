"""Studies a model in processes with limits: trying values may hang it, or take all memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fairway.convert.ladder.cache_warmup import find_warm_up
from fairway.convert.ladder.prepare_model import prepare_for_judging
from fairway.convert.ladder.session import ExportSession
from fairway.judge.budget import count_flops
from fairway.judge.survey import study_values, survey_branches
from fairway.model.study import Study
from fairway.model.subject import Subject
from fairway.record.progress import EventSink
from fairway.workers.attempt import Limits, Workers

VALUES_SECONDS = 60.0
"""Limit of the trial of values, which may hang."""
BRANCHES_SECONDS = 120.0
"""Limit of the survey of branches."""


def study_subject(session: ExportSession) -> Subject:
    """Return the subject with everything learned by running it, or with a part of it if a limit ended the study.

    Legal values are learned in a separate process, because trying them can end it. The cost of a run is too, because a
    model may keep the fake tensors that it is counted with.
    """
    workers, subject, remedies = session.workers, session.subject, session.settings.remedies
    if session.settings.level == "none":
        return subject
    subject = find_warm_up(workers, _add_cost(workers, subject, remedies), remedies)
    studies = [subject.study]

    def learn_values(on_study: Callable[[Study], None]) -> Study:
        prepare_for_judging(subject, remedies)
        return study_values(subject, on_study)

    outcome = workers.run(learn_values, studies.append, _cap_limits(workers, VALUES_SECONDS))
    subject = replace(subject, study=outcome.value if outcome.status == "done" else studies[-1])
    if not subject.study.flops_per_volume and subject.ranges:  # the values drawn at first may not have been legal
        subject = _add_cost(workers, subject, remedies)

    def survey(on_event: EventSink) -> Study:
        prepare_for_judging(subject, remedies)
        return survey_branches(subject)

    outcome = workers.run(survey, limits=_cap_limits(workers, BRANCHES_SECONDS))
    if outcome.status == "done":
        return replace(subject, study=outcome.value)
    reason = outcome.failure.message if outcome.failure else outcome.status
    return replace(subject, study=replace(subject.study, note=f"the branches of the model were not followed: {reason}"))


def _add_cost(workers: Workers, subject: Subject, remedies: bool) -> Subject:
    """Return the subject with the cost of a run, or unchanged if that cannot be counted."""

    def count(on_event: EventSink) -> float:
        prepare_for_judging(subject, remedies)
        return count_flops(subject)

    outcome = workers.run(count, limits=_cap_limits(workers, VALUES_SECONDS))
    if outcome.status != "done":
        return subject
    return replace(subject, study=replace(subject.study, flops_per_volume=outcome.value))


def _cap_limits(workers: Workers, seconds: float) -> Limits:
    return Limits(min(workers.limits.seconds, seconds), workers.limits.bytes)
