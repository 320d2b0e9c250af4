"""Derive the verdict and its findings from the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.convert.ladder.diagnose import blame_suspects, blame_warnings, diagnose
from fairway.convert.ladder.size_assumptions import blame_size_assumptions
from fairway.convert.rewrite.find import Suspect
from fairway.convert.types import CAUSE_CODES, Candidate, Preflight, Rung, Verdict, find_best_rung
from fairway.diagnostics import Code, Finding
from fairway.judge.coverage_report import UNPROVEN_CODES
from fairway.judge.evidence import Evidence
from fairway.workers.attempt import Outcome

COUNTING_CODES = (Code.LOOP_UNROLLED, Code.LIST_FROZEN)
"""Causes with a number of steps or elements that follows a size."""


def weigh_evidence(
    judged: Outcome, candidate: Candidate, suspects: Sequence[Suspect]
) -> tuple[Verdict, Evidence | None, tuple[Finding, ...]]:
    """Return the verdict on a candidate, its evidence and its findings. A file that crashes a runtime is wrong."""
    if judged.status != "done":
        findings = diagnose(judged, suspects)
        return "wrong" if findings[0].code.startswith("FW4") else "unproven", None, tuple(findings)
    evidence: Evidence = judged.value
    clash = report_name_clash(candidate)
    if not evidence.wrong:
        incomplete = any(finding.code in UNPROVEN_CODES for finding in evidence.findings)
        verdict: Verdict = "wrong" if clash else "unproven" if incomplete else "verified"
        return verdict, evidence, (*evidence.findings, *clash)
    causes = blame_warnings(candidate.warnings, suspects) or blame_suspects(suspects, bool(evidence.boundaries))
    if evidence.boundaries:
        boundaries = "; ".join(evidence.boundaries)
        causes = [replace(cause, seen=f"{cause.seen}; the file is {boundaries}") for cause in causes]
    blamed = blame_size_assumptions(candidate, evidence, (*causes, *evidence.findings))
    return "wrong", evidence, (*blamed, *clash)


def report_name_clash(candidate: Candidate) -> tuple[Finding, ...]:
    return tuple(Finding(Code.NAME_CLASH, name) for name in candidate.clash)


def select_findings(preflight: Preflight, rungs: Sequence[Rung]) -> tuple[Finding, ...]:
    """Return the findings that matter for the result: the best rung's, and the user's lines that any rung named.

    If no rung names a cause for a wrong file, the line counts at which torch.export refused the model: the file is
    made by an exporter that refuses less. The record lists the findings of the other rungs, rung by rung.
    """
    best = find_best_rung(rungs)
    findings = list(preflight.findings) + list(best.findings if best else ())
    if best is not None and best.verdict in ("failed", "wrong"):
        causes = [finding for rung in rungs for finding in rung.findings if finding.code in CAUSE_CODES]
        findings += causes or (_find_refused_lines(rungs) if best.verdict == "wrong" else [])
    if any(finding.code in COUNTING_CODES for finding in findings):  # each number of steps is a region
        findings = [finding for finding in findings if finding.code != Code.TOO_MANY_REGIONS]
    unique: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        place = f"{finding.where.file}:{finding.where.line}" if finding.where and finding.where.file else finding.seen
        unique.setdefault((finding.code, place), finding)
    return tuple(sorted(unique.values(), key=rank_finding))


def _find_refused_lines(rungs: Sequence[Rung]) -> list[Finding]:
    """Return the findings with a line of the failed rung that got furthest, if torch.export refused the model."""
    refused = [rung for rung in rungs if rung.candidate is None and not rung.route.is_traced]
    named = [rung for rung in refused if any(_names_line(finding) for finding in rung.findings)]
    best = find_best_rung(named)
    return [] if best is None else [finding for finding in best.findings if _names_line(finding)]


def _names_line(finding: Finding) -> bool:
    return finding.where is not None and finding.where.file is not None


def rank_finding(finding: Finding) -> tuple[int, int, int]:
    """Return a sort key: by severity, the user's lines, what has a line, and evidence before exporters' messages."""
    groups = {"FW2": 0, "FW4": 2, "FW3": 3, "FW5": 4}
    severity = {"error": 0, "warning": 1, "note": 2}[finding.severity]
    group = -1 if finding.code in CAUSE_CODES else groups.get(finding.code[:3], 5)
    has_line = group in (2, 3) and _names_line(finding)
    return severity, 1 if has_line else group, group
