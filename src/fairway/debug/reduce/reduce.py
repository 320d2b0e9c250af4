"""Reduce a model whose export fails to the smallest script that fails in the same way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from fairway.convert.ladder.translation_tables import build_tables
from fairway.debug.reduce.best_so_far import BestSoFar
from fairway.debug.reduce.failure import find_failure
from fairway.debug.reduce.first_cut import cut_to_suspect
from fairway.debug.reduce.issue_report import ReduceResult
from fairway.debug.reduce.last_checks import TimeBudget, fails_alone, passes_check, rule_out
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.reproducer import make_title, write_script
from fairway.debug.reduce.shrink import shrink
from fairway.debug.reduce.trial_export import EXPORTERS
from fairway.model.subject import Subject
from fairway.record.progress import EventSink, StageStarted, format_duration


@dataclass(frozen=True)
class ReduceSettings:
    """The failure to look for, and the time for it."""

    exporter: str | None = None
    """The exporter to try; None for all."""
    check: str | None = None
    """A command that is given a candidate script and returns exit code 0 if it still shows the failure."""
    seconds: float = 600.0
    trial_seconds: float = 60.0


def reduce_subject(
    subject: Subject, folder: Path, settings: ReduceSettings, on_event: EventSink
) -> ReduceResult | None:
    """Write repro.py and report.md into `folder`. Return None if torch's exporter makes no error."""
    time_budget = TimeBudget(settings.seconds, settings.trial_seconds)
    build_tables()
    exporters = [settings.exporter] if settings.exporter else list(EXPORTERS)
    start = find_failure(subject, folder, exporters, settings.check, time_budget, on_event)
    if start is None:
        return None
    runner, failure, program = start.runner, start.seen, start.program
    best = BestSoFar(folder, start.full_program, runner.exporter, failure)
    if start.is_part:
        best.save(program)
    remaining = f"{len(program.calls)} calls, {program.operators} operators left"

    def fails(candidate: Program) -> bool:
        nonlocal remaining
        time_left = format_duration(max(time_budget.seconds_left, 0))
        on_event(StageStarted(f"{remaining}; trying {len(candidate.calls)}, {time_left} left"))
        began = time.monotonic()
        if settings.check:
            fails_alike = passes_check(candidate, runner.exporter, settings.check)
        else:
            fails_alike = runner(candidate).signature == failure.signature
        if fails_alike:
            time_budget.last_trial_seconds = time.monotonic() - began
            best.save(candidate)
            remaining = f"{len(candidate.calls)} calls, {candidate.operators} operators left"
        return fails_alike

    if not start.is_part and not settings.check:
        program = cut_to_suspect(program, failure, runner, fails, time_budget.is_used_up)
    program = shrink(program, fails, time_budget.is_used_up)
    finished = not time_budget.is_used_up()
    title = make_title(failure, program, runner.exporter)
    script = write_script(program, runner.exporter, title)
    on_event(StageStarted(f"{remaining}; running the script alone"))
    reproduced = fails_alone(script, failure, settings.check, time_budget)
    on_event(StageStarted(f"{remaining}; ruling out other causes"))
    ruled_out = rule_out(program, runner, failure, time_budget)
    reduced = ReduceResult(
        exporter=runner.exporter,
        seen=failure,
        calls=len(start.full_program.calls),
        program=program,
        title=title,
        script=script,
        reproduced=reproduced,
        finished=finished,
        trials=runner.trials,
        seconds=time.monotonic() - time_budget.started,
        ruled_out=ruled_out,
    )
    best.finish(reduced)
    return reduced
