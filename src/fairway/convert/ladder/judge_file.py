"""Judges an ONNX file that exists already: one rung without a capture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fairway.convert.ladder.climb import raise_user_error
from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.ladder.judge_worker import judge_candidate
from fairway.convert.ladder.preflight import run_preflight
from fairway.convert.ladder.route import Route
from fairway.convert.ladder.session import ExportSession
from fairway.convert.ladder.weigh_evidence import select_findings, weigh_evidence
from fairway.convert.types import Candidate, Climb, PlannedRung, Preflight, Rung
from fairway.diagnostics import Code, Finding
from fairway.judge.evidence import Differential
from fairway.judge.graph_constants import has_branches
from fairway.model.onnx_file import OnnxHeader, find_fixed_dims, find_fixed_outputs


def judge_file(session: ExportSession, path: Path, header: OnnxHeader) -> Climb:
    """Run the model in PyTorch, then judge the file against it."""
    outcome = session.workers.run(lambda on_event: run_preflight(session.subject, session.settings.remedies))
    raise_user_error(outcome)
    if outcome.status != "done":
        return Climb(Preflight(), findings=tuple(diagnose(outcome, ())))
    preflight: Preflight = outcome.value
    if preflight.hopeless:
        return Climb(preflight, findings=select_findings(preflight, ()))
    candidate = Candidate(
        str(path),
        header.opset,
        tuple(value.name for value in header.outputs),
        sampled_because="the file is judged as it is, without its capture",
        one_sided=not has_branches(str(path)),
    )
    step = PlannedRung(Route("file"))
    rung = Rung(step, step.route, candidate=candidate)
    fixed_dims = find_fixed_dims(header, session.subject)
    if fixed_dims:
        findings = tuple(Finding(Code.DIM_FIXED, dim) for dim in fixed_dims)
        return Climb(preflight, (replace(rung, verdict="wrong", findings=findings),), findings)
    rung = _judge(session, rung, candidate)
    rung = replace(rung, findings=(*rung.findings, *find_fixed_outputs(header, preflight.output_axes)))
    return Climb(preflight, (rung,), select_findings(preflight, (rung,)))


def _judge(session: ExportSession, rung: Rung, candidate: Candidate) -> Rung:
    outcome = judge_candidate(session, candidate)
    verdict, evidence, findings = weigh_evidence(outcome, candidate, ())
    if evidence is not None:
        note = "not possible: the file is judged as it is, without the route that made it"
        evidence = replace(evidence, differential=Differential(done=False, note=note))
    return replace(
        rung,
        verdict=verdict,
        evidence=evidence,
        findings=findings,
        seconds=outcome.seconds,
        peak_bytes=outcome.peak_bytes,
    )
