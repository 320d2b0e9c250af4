"""The climb: rung after rung until a file is verified. Start here to read how an export works."""

from __future__ import annotations

from fairway.convert.ladder.diagnose import diagnose
from fairway.convert.ladder.first_look import FirstLook, blames_blocks, look_at_more_blocks, take_first_look
from fairway.convert.ladder.plan import choose_next_step
from fairway.convert.ladder.session import ExportSession
from fairway.convert.ladder.walk_rung import walk_rung
from fairway.convert.ladder.weigh_evidence import select_findings
from fairway.convert.types import Climb, Preflight, Rung
from fairway.diagnostics import exit_status
from fairway.diagnostics.errors import UserError
from fairway.record.progress import RungFinished, RungStarted, StageStarted
from fairway.workers.attempt import Outcome


def climb(session: ExportSession) -> Climb:
    """Look at the model, then try one route after another. The findings of a rung choose the next.

    Of equal blocks in a row only two or three are looked at and captured, or all of them if that does not work.
    """
    session.on_event(StageStarted("looking at the model"))
    outcome = take_first_look(session)
    raise_user_error(outcome)
    if outcome.status != "done":
        return Climb(Preflight(), findings=tuple(diagnose(outcome, ())))
    look: FirstLook = outcome.value
    if look.preflight.hopeless:
        return Climb(look.preflight, findings=select_findings(look.preflight, ()))
    rungs: list[Rung] = []
    while (step := choose_next_step(rungs, session.settings, look.suspects, look.repeats)) is not None:
        session.on_event(RungStarted(step.name))
        rung = walk_rung(session, step, look, rungs)
        if step.repeats and blames_blocks(rung):
            look = look_at_more_blocks(session, look, rung)
        rungs.append(rung)
        if rung.is_captured:
            session.on_event(_summarize_rung(rung))
        for finding in rung.findings:
            if exit_status(finding.code) == 2:
                raise UserError(finding)  # such as a full disk: every other rung would fail too
        if rung.verdict == "verified" or (session.settings.level == "none" and rung.verdict == "unproven"):
            break
    walked = [rung for rung in rungs if rung.is_captured]
    return Climb(look.preflight, tuple(walked), select_findings(look.preflight, walked))


def raise_user_error(outcome: Outcome) -> None:
    """Raise a usage error that a worker process reported."""
    finding = outcome.failure.finding if outcome.failure else None
    if finding is not None and exit_status(finding.code) in (2, 3):
        raise UserError(finding)


def _summarize_rung(rung: Rung) -> RungFinished:
    evidence = rung.evidence
    return RungFinished(
        route=rung.step.name,
        verdict=rung.verdict,
        seconds=round(rung.seconds, 2),
        samples_right=None if evidence is None else evidence.points_right,
        samples_total=None if evidence is None else evidence.legal_samples,
        finding_codes=tuple(dict.fromkeys(finding.code for finding in rung.findings)),
    )
