"""The findings of a result: of the rung that got furthest, what has a line first."""

from __future__ import annotations

from fairway.convert.ladder.route import parse_route
from fairway.convert.ladder.weigh_evidence import rank_finding, select_findings
from fairway.convert.types import Candidate, PlannedRung, Preflight, Rung, Verdict, find_best_rung
from fairway.diagnostics import Finding, Where

LINE = Where(file="model.py", line=3, source="return x")
OTHER = Where(file="model.py", line=9, source="return y")


def make_rung(name: str, *findings: Finding, verdict: Verdict = "failed", decided: bool = False) -> Rung:
    step = PlannedRung(parse_route(name, None), decided=decided)
    candidate = Candidate("m.onnx", 20) if verdict != "failed" else None
    return Rung(step, step.route, verdict, 1.0, findings=findings, candidate=candidate)


def test_of_failed_rungs_the_one_that_was_captured_counts() -> None:
    refused, captured = Finding("FW303", "a", LINE), Finding("FW304", "b", OTHER)
    rungs = [make_rung("export-dynamic", refused), make_rung("strict-dynamic", captured)]
    assert find_best_rung(rungs) is rungs[1]
    assert [finding.code for finding in select_findings(Preflight(), rungs)] == ["FW304"]


def test_of_equal_failures_the_one_with_a_line_counts() -> None:
    rungs = [make_rung("strict-dynamic", Finding("FW303", "a")), make_rung("export-auto", Finding("FW303", "b", LINE))]
    assert find_best_rung(rungs) is rungs[1]


def test_a_wrong_trace_comes_with_the_line_that_torch_export_refused() -> None:
    refused = make_rung("export-dynamic", Finding("FW303", "a", LINE))
    further = make_rung("export-dynamic", Finding("FW303", "b", OTHER), decided=True)
    wrong = make_rung("trace", Finding("FW401", "numbers"), verdict="wrong")
    selected = select_findings(Preflight(), [refused, further, wrong])
    assert [(finding.code, finding.where) for finding in selected] == [("FW303", OTHER), ("FW401", None)]


def test_a_named_cause_needs_no_refused_line() -> None:
    refused = make_rung("export-dynamic", Finding("FW303", "a", LINE))
    wrong = make_rung("trace", Finding("FW207", "branch", OTHER), Finding("FW401", "numbers"), verdict="wrong")
    assert [finding.code for finding in select_findings(Preflight(), [refused, wrong])] == ["FW207", "FW401"]


def test_findings_with_a_line_come_first_and_evidence_before_messages() -> None:
    findings = [
        Finding("FW301", "message"),
        Finding("FW403", "shape"),
        Finding("FW303", "decision", LINE),
        Finding("FW402", "dim", OTHER),
        Finding("FW206", "loop", LINE),
    ]
    ranked = sorted(findings, key=rank_finding)
    assert [finding.code for finding in ranked] == ["FW206", "FW402", "FW303", "FW403", "FW301"]


def test_a_loop_explains_too_many_regions() -> None:
    regions = make_rung("pieces", Finding("FW329", "more than 12"))
    wrong = make_rung("trace", Finding("FW206", "loop", LINE), verdict="wrong")
    assert [finding.code for finding in select_findings(Preflight(), [regions, wrong])] == ["FW206"]
    other = make_rung("trace", Finding("FW401", "numbers"), verdict="wrong")
    assert [finding.code for finding in select_findings(Preflight(), [regions, other])] == ["FW329", "FW401"]
