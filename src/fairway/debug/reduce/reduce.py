"""From a model whose export fails to the smallest script that fails in the same way."""

from __future__ import annotations

import time
from pathlib import Path

from fairway.convert.ladder.tables import build_tables
from fairway.debug.reduce.best_so_far import Keeper
from fairway.debug.reduce.failure import Progress, failing
from fairway.debug.reduce.first_cut import aim
from fairway.debug.reduce.issue_report import Reduced
from fairway.debug.reduce.last_checks import Clock, checks, rule_out, runs_alone
from fairway.debug.reduce.program import Program
from fairway.debug.reduce.reproducer import title_of, write_script
from fairway.debug.reduce.shrink import shrink
from fairway.debug.reduce.trial_export import EXPORTERS
from fairway.model.subject import Subject
from fairway.record.progress import show_time


def reduce_subject(
    subject: Subject,
    folder: Path,
    exporter: str | None,
    check: str | None,
    budget: float,
    limit: float,
    progress: Progress,
) -> Reduced | None:
    """Writes repro.py and report.md into `folder`. None where the stock exporter does nothing wrong.

    `check` is a command that is given a candidate script, and says by exit code 0 that it is still of interest.
    `budget` bounds the whole, `limit` each trial, in seconds.
    """
    clock = Clock(budget, limit)
    build_tables()
    start = failing(subject, folder, [exporter] if exporter else list(EXPORTERS), check, clock, progress)
    if start is None:
        return None
    bench, seen, program = start.bench, start.seen, start.program
    keeper = Keeper(folder, start.whole, bench.exporter, seen)
    if start.cut:
        keeper.keep(program)
    left = f"{len(program.calls)} calls, {program.operators} operators left"

    def fails(candidate: Program) -> bool:
        nonlocal left
        progress(("stage", f"{left}; trying {len(candidate.calls)}, {show_time(max(clock.left, 0))} left"))
        began = time.monotonic()
        same = checks(candidate, bench.exporter, check) if check else bench(candidate).signature == seen.signature
        if same:
            clock.last = time.monotonic() - began
            keeper.keep(candidate)
            left = f"{len(candidate.calls)} calls, {candidate.operators} operators left"
        return same

    if not start.cut and not check:
        program = aim(program, seen, bench, fails, clock.enough)
    program = shrink(program, fails, clock.enough)
    finished = not clock.enough()
    title = title_of(seen, program, bench.exporter)
    script = write_script(program, bench.exporter, title)
    progress(("stage", f"{left}; the script on its own"))
    reproduced = runs_alone(script, seen, check, clock)
    progress(("stage", f"{left}; what the failure is not"))
    ruled_out = rule_out(program, bench, seen, clock)
    reduced = Reduced(
        bench.exporter,
        seen,
        len(start.whole.calls),
        program,
        title,
        script,
        reproduced,
        finished,
        bench.tried,
        time.monotonic() - clock.started,
        ruled_out,
    )
    keeper.finish(reduced)
    return reduced
