"""The study of a model in a process with limits: trying values may hang it, or take all memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fairway.convert.ladder.cache_warmup import find_warm_up
from fairway.convert.ladder.judge_worker import settle
from fairway.judge.budget import count_flops
from fairway.judge.survey import study_values, survey_branches
from fairway.model.study import Study
from fairway.model.subject import Subject
from fairway.workers.attempt import Limits, Workers

VALUES_SECONDS = 60.0
"""A trial of values may hang."""
BRANCHES_SECONDS = 120.0


def study_subject(workers: Workers, subject: Subject, level: str, remedies: bool) -> Subject:
    """Return the subject with what was learned by running it; as far as it came, if a limit ended the study.

    Legal values are learned in a process of their own, because trying them can end it. So is what a run costs, because
    a model may keep the fake tensors that it is counted with.
    """
    if level == "none":
        return subject
    subject = find_warm_up(workers, _with_cost(workers, subject, remedies), remedies)
    known = [subject.study]

    def learn(tell: Any) -> Study:
        settle(subject, remedies)
        return study_values(subject, tell)

    outcome = workers.run(learn, known.append, _limits(workers, VALUES_SECONDS))
    subject = replace(subject, study=outcome.value if outcome.status == "done" else known[-1])
    if not subject.study.flops_per_volume and subject.ranges:  # the values drawn at first may not have been legal
        subject = _with_cost(workers, subject, remedies)

    def survey(tell: Any) -> Study:
        settle(subject, remedies)
        return survey_branches(subject)

    outcome = workers.run(survey, limits=_limits(workers, BRANCHES_SECONDS))
    if outcome.status == "done":
        return replace(subject, study=outcome.value)
    why = outcome.failure.message if outcome.failure else outcome.status
    return replace(subject, study=replace(subject.study, note=f"the branches of the model were not followed: {why}"))


def _with_cost(workers: Workers, subject: Subject, remedies: bool) -> Subject:
    """Return the subject with what a run costs, or as it is if that cannot be counted."""

    def count(tell: Any) -> float:
        settle(subject, remedies)
        return count_flops(subject)

    outcome = workers.run(count, limits=_limits(workers, VALUES_SECONDS))
    if outcome.status != "done":
        return subject
    return replace(subject, study=replace(subject.study, flops_per_volume=outcome.value))


def _limits(workers: Workers, seconds: float) -> Limits:
    return Limits(min(workers.limits.seconds, seconds), workers.limits.bytes)
