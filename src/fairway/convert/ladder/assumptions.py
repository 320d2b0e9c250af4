"""What a capture assumed of sizes, held against the points at which its file is wrong: the line to blame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.convert.ladder.capture import Captured
from fairway.convert.ladder.questions import Question, broken_at
from fairway.diagnostics import Finding
from fairway.judge.evidence import Evidence

NAMED = ("FW205", "FW206", "FW207", "FW211", "FW212", "FW216", "FW217", "FW329")
"""Findings that name the true cause in the model's own code, or the regions of sizes that are too many."""

FIXED = "FW402"


def assumed_sizes(captured: Captured, evidence: Evidence, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings on a wrong file, with the line at which its capture fixed or limited a size.

    A fixed dim gets the line that fixed it. If no line is named so far, and the capture assumed something that does not
    hold at the failing points, the line that asked is.
    """
    done = tuple(_with_line(finding, captured.questions) for finding in findings)
    if any(finding.code in NAMED for finding in done):
        return done
    points = [sample.sizes for sample in evidence.failing if sample.data is None]
    broken = broken_at(captured.questions, points)
    if broken is None or any(finding.code == FIXED and finding.where is not None for finding in done):
        return done
    return (Finding("FW424", f"{broken}; the file is wrong where it does not hold", where=broken.where), *done)


def _with_line(finding: Finding, questions: Sequence[Question]) -> Finding:
    if finding.code != FIXED or finding.where is not None:
        return finding
    dims = finding.data.get("fixed", ())
    cause = next((one for one in questions if one.fixes in dims), None)
    return finding if cause is None else replace(finding, seen=f"{finding.seen}; {cause}", where=cause.where)
