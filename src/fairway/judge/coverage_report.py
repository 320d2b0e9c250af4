"""Describe the branches that samples did not reach, and the values from which samples were drawn."""

from __future__ import annotations

from fairway.diagnostics import Code, Finding
from fairway.judge.evidence import DrawnValues, FileFacts
from fairway.model.ranges import ValueRange, describe_range, find_legal_ends
from fairway.model.spec import TensorSpec
from fairway.model.study import PythonRead, UnreachedBranch
from fairway.model.subject import Subject

UNPROVEN_CODES = (Code.RANDOM_FORWARD, Code.BRANCH_NOT_REACHED, Code.MANY_EXCUSES, Code.EVIDENCE_INCOMPLETE)
"""Findings after which a file that agrees at every sample is not verified."""


def report_unreached(subject: Subject, facts: FileFacts) -> list[Finding]:
    """Return a finding for each branch with a side that no sample took, and for a model that is random at some inputs.

    A branch is left out if the capture showed that no input affects the values read for it. The verdict is `unproven`
    if the file holds only one side of the branch, or if a remedy decided it.
    """
    findings = [_make_finding(branch, facts) for branch in subject.study.unreached if not _is_constant(branch, facts)]
    findings += [finding for read in subject.study.reads for finding in _report_read(read, facts)]
    if subject.study.random is not None:
        sample, where = subject.study.random
        message = f"two runs differ on the same inputs, at {sample}"
        findings.append(Finding(Code.RANDOM_FORWARD, message, where=where, grade="warning"))
    if subject.study.note:
        findings.append(
            Finding(
                Code.BRANCH_NOT_REACHED if facts.one_sided or facts.decided else Code.BRANCH_UNSEEN, subject.study.note
            )
        )
    return findings


def _is_constant(branch: UnreachedBranch, facts: FileFacts) -> bool:
    return bool(branch.reads) and branch.reads <= facts.constant - facts.decided and not facts.one_sided


def _make_finding(branch: UnreachedBranch, facts: FileFacts) -> Finding:
    line = (branch.where.file or "", branch.where.line or 0)
    code = Code.BRANCH_NOT_REACHED if facts.one_sided or line in facts.decided else Code.BRANCH_UNSEEN
    return Finding(
        code, f"`{branch.condition}` was never {str(branch.missing).lower()} at any sample", where=branch.where
    )


def _report_read(read: PythonRead, facts: FileFacts) -> list[Finding]:
    """Return a finding for a value that Python reads without a branch.

    A trace keeps what Python made of it at the example. Other files may compute it, so there only a value that never
    changed is reported.
    """
    is_decided = bool(read.lines & facts.decided)
    if facts.keeps_reads:
        message = f"`{read.expression}` is read by Python, and a trace keeps what follows from it at the example"
    elif read.value and not read.lines & facts.constant:
        message = f"`{read.expression}` was {read.value} at every sample"
    else:
        return []
    is_unproven = facts.keeps_reads or facts.one_sided or is_decided
    return [Finding(Code.BRANCH_NOT_REACHED if is_unproven else Code.BRANCH_UNSEEN, message, where=read.where)]


def _find_open_ends(spec: TensorSpec, legal: ValueRange) -> tuple[float | None, float | None]:
    """Return the ends of the drawn values, if they are known and were not declared."""
    known = legal.is_declared or legal.confined or legal.values.lengths is not None
    if known or spec.dtype == "bool" or spec.dtype.startswith("complex"):
        return None, None
    return (0.0, 1.0) if legal.binary else find_legal_ends(spec, legal)


def describe_values(subject: Subject) -> tuple[DrawnValues, ...]:
    """Describe, for each input, the values from which it was drawn."""
    if not subject.ranges:
        return tuple(DrawnValues(spec.name, "made by the inputs function") for spec in subject.spec)
    drawn = []
    for spec, legal in zip(subject.spec, subject.ranges, strict=True):
        low, high = _find_open_ends(spec, legal)
        drawn.append(DrawnValues(spec.name, describe_range(spec, legal), low, high))
    return tuple(drawn)
