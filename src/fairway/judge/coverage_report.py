"""What the samples did not reach, and what they were drawn from, in the words of a result."""

from __future__ import annotations

from fairway.diagnostics import Finding
from fairway.judge.evidence import DrawnValues, FileFacts
from fairway.model.ranges import ValueRange, describe_range, legal_ends
from fairway.model.spec import TensorSpec
from fairway.model.study import Unreached
from fairway.model.subject import Subject

UNPROVEN_CODES = ("FW203", "FW417", "FW422", "FW504")
"""Findings after which a file that agrees at every sample is not verified."""


def not_reached(subject: Subject, facts: FileFacts) -> list[Finding]:
    """Return a finding for each branch of which no sample took one side, and for a model that is random at some inputs.

    A branch is left out if the capture has shown that no input reaches the values read for it. It makes the verdict
    `unproven` if the file holds one side only, or if a remedy decided that branch.
    """
    found = [_finding(one, facts) for one in subject.study.unreached if not _is_constant(one, facts)]
    if subject.study.random is not None:
        sample, where = subject.study.random
        seen = f"two runs differ on the same inputs, at {sample}"
        found.append(Finding("FW203", seen, where=where, grade="warning"))
    if subject.study.note:
        found.append(Finding("FW417" if facts.one_sided or facts.decided else "FW418", subject.study.note))
    return found


def _is_constant(one: Unreached, facts: FileFacts) -> bool:
    return bool(one.reads) and one.reads <= facts.constant - facts.decided and not facts.one_sided


def _finding(one: Unreached, facts: FileFacts) -> Finding:
    line = (one.where.file or "", one.where.line or 0)
    code = "FW417" if facts.one_sided or line in facts.decided else "FW418"
    return Finding(code, f"`{one.condition}` was never {str(one.missing).lower()} at any sample", where=one.where)


def _ends(spec: TensorSpec, legal: ValueRange) -> tuple[float | None, float | None]:
    """Return the ends of what was drawn, if they are not declared and are known."""
    known = legal.declared or legal.confined or legal.values.lengths is not None
    if known or spec.dtype == "bool" or spec.dtype.startswith("complex"):
        return None, None
    return (0.0, 1.0) if legal.binary else legal_ends(spec, legal)


def describe_values(subject: Subject) -> tuple[DrawnValues, ...]:
    """Return, for each input, what it was drawn from."""
    if not subject.ranges:
        return tuple(DrawnValues(spec.name, "made by the inputs function") for spec in subject.spec)
    drawn = []
    for spec, legal in zip(subject.spec, subject.ranges, strict=True):
        low, high = _ends(spec, legal)
        drawn.append(DrawnValues(spec.name, describe_range(spec, legal), low, high))
    return tuple(drawn)
