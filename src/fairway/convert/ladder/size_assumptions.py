"""Blames a line of code for a wrong file: a condition on sizes that its capture assumed and that does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.convert.ladder.size_questions import Question, find_broken_question
from fairway.convert.types import CAUSE_CODES, Candidate
from fairway.diagnostics import Code, Finding
from fairway.judge.evidence import Evidence

FIXED_DIM = Code.DIM_FIXED


def blame_size_assumptions(
    candidate: Candidate, evidence: Evidence, findings: Sequence[Finding]
) -> tuple[Finding, ...]:
    """Return the findings on a wrong file, with the line at which its capture fixed or limited a size.

    A fixed dim gets the line that fixed it. If no finding names a line yet, and the capture assumed a condition that
    does not hold at the failing points, a finding names the line that asked for it.
    """
    located = tuple(_add_line(finding, candidate.questions) for finding in findings)
    if any(finding.code in CAUSE_CODES for finding in located):
        return located
    points = [sample.sizes for sample in evidence.failing if sample.data is None]
    broken = find_broken_question(candidate.questions, points)
    if broken is None or any(finding.code == FIXED_DIM and finding.where is not None for finding in located):
        return located
    return (
        Finding(Code.SIZE_ASSUMED, f"{broken}; the file is wrong where it does not hold", where=broken.where),
        *located,
    )


def _add_line(finding: Finding, questions: Sequence[Question]) -> Finding:
    if finding.code != FIXED_DIM or finding.where is not None:
        return finding
    dims = finding.data.get("fixed", ())
    cause = next((question for question in questions if question.fixes in dims), None)
    return finding if cause is None else replace(finding, seen=f"{finding.seen}; {cause}", where=cause.where)
