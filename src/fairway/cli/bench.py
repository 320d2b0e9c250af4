"""fairway bench model.onnx"""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.cli.show import ProgressLine
from fairway.diagnostics import Code
from fairway.diagnostics.columns import fits_terminal, stack_rows
from fairway.diagnostics.errors import complain
from fairway.diagnostics.render import make_printable

if TYPE_CHECKING:
    from fairway.tune.bench.bench_result import ArmRow, ArmSpeed, BenchResult, PointTimings
    from fairway.tune.bench.profile import Profile


FilesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL.onnx...", help="Files with the same inputs.", callback=options.check_model),
]
AtOption = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="SIZES", help="A point, e.g. batch=8,time=100. Repeatable. Default: three points."),
]
LevelsOption = Annotated[
    str,
    typer.Option("--levels", metavar="LIST", help="Optimization levels of ONNX Runtime: all, extended, basic, none."),
]
ThreadsOption = Annotated[
    str | None,
    typer.Option(
        "--threads", metavar="LIST", help="Thread counts, e.g. 1,4. Default: all cores, and 1 for ONNX Runtime."
    ),
]


def bench(
    files: FilesArgument,
    recipe: options.RecipeOption = None,
    at: AtOption = None,
    levels: LevelsOption = "all,none",
    threads: ThreadsOption = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Measuring time for each arm at each point.")] = 1.0,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="OUT.svg", help="Draw the timings.")] = None,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    timeout: options.TimeoutOption = "2m",
    memory: options.MemoryOption = None,
    json: options.JsonOption = False,
) -> int:
    """Time files against PyTorch and other engines.

    Each speed has an interval, so that you see whether a difference is real. With --recipe PyTorch eager and
    torch.compile are timed too.
    """
    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    arm_seconds = options.parse_duration("--timeout", timeout)
    memory_bytes = options.parse_memory(memory)
    counts = tuple(_parse_count(part) for part in threads.split(",")) if threads else ()
    if plot is not None and not plot.absolute().parent.is_dir():
        raise complain(Code.CANNOT_WRITE, f"the folder {plot.parent} does not exist")

    from fairway.tune.bench.bench import BenchRequest
    from fairway.tune.bench.bench import run_bench as run
    from fairway.tune.bench.timing_chart import draw_timings
    from fairway.workers.attempt import Limits

    level_names = tuple(part.strip() for part in levels.split(","))
    request = BenchRequest(level_names, counts, tuple(at or ()), seconds, Limits(arm_seconds, memory_bytes))
    progress = ProgressLine(forks=False)
    try:
        with redirect_stdout(sys.stderr):  # a recipe may print; standard output is for the result
            result = run(files, recipe, overrides, request, progress)
    finally:
        progress.close()
    if plot is not None:
        plot.write_text(draw_timings(result))
    print(json_module.dumps(result.as_dict(), indent=1) if json else "\n".join(format_bench(result)))
    return 0 if result.has_timings else 1


def _parse_count(text: str) -> int:
    if not text.strip().isdecimal():
        raise complain(Code.UNKNOWN_OPTION, f"--threads: expected numbers such as 1,4, got {text!r:.80}")
    return int(text)


def format_bench(result: BenchResult) -> Iterator[str]:
    """Yield the result as lines for a terminal or a log."""
    for note in result.files:
        mark = "" if note.is_verified else "NOT VERIFIED: "
        yield make_printable(f"{note.path}  {mark}{note.about}")
    machine = f"{result.machine['cpu']}, {result.machine['cores']} cores, load {result.machine['load']} at the end"
    yield make_printable(f"{machine}; sizes by {result.sizes_from}; {result.seconds:g} s for each arm at each point")
    if result.machine["load"] > 1.5 * result.machine["cores"]:
        yield "the machine was busy: intervals are wide, and times are longer than on an idle machine"
    for at in result.points:
        yield ""
        yield from _format_point(at)
    yield ""
    yield from _format_arms(result.arms)
    for profile in result.profiles:
        yield ""
        yield from _format_profile(profile)


def _format_point(at: PointTimings) -> Iterator[str]:
    from fairway.model.dims import describe_point as show_point
    from fairway.tune.bench.bench_result import format_seconds

    rows: list[tuple[str, ...]] = [(f"at {show_point(at.point)}", "p50", "p95", "p99", "speed")]
    for speed in at.speeds:
        rows.append((speed.arm, *map(format_seconds, (speed.p50, speed.p95, speed.p99)), _format_ratio(speed)))
    rows += [(name, "-", "-", "-", f"failed: {why}") for name, why in at.failures.items()]
    width = max(len(row[0]) for row in rows[1:]) if rows[1:] else 0
    lines = [f"{arm:<{width}}  {p50:>9} {p95:>9} {p99:>9}  {last}" for arm, p50, p95, p99, last in rows]
    yield from map(make_printable, lines if fits_terminal(lines) else [rows[0][0], *stack_rows(rows)])


def _format_ratio(speed: ArmSpeed) -> str:
    return "1 (the others are compared with this)" if speed.ratio is None else str(speed.ratio)


def _format_arms(arms: tuple[ArmRow, ...]) -> Iterator[str]:
    from fairway.tune.bench.bench_result import format_seconds

    rows = [("each in a separate process", "loaded in", "peak memory")]
    for arm in arms:
        ready = "-" if arm.ready_seconds is None else format_seconds(arm.ready_seconds)
        peak = "-" if arm.peak_bytes is None else f"{arm.peak_bytes / 1e6:.0f} MB"
        rows.append((arm.name, ready, peak))
    width = max((len(arm.name) for arm in arms), default=0)
    lines = [f"{name:<{width}}  {ready:>9} {peak:>12}" for name, ready, peak in rows]
    yield from map(make_printable, lines if fits_terminal(lines) else [rows[0][0], *stack_rows(rows)])


def _format_profile(profile: Profile) -> Iterator[str]:
    from fairway.model.dims import describe_point as show_point
    from fairway.tune.bench.bench_result import format_seconds

    if profile.note:
        yield make_printable(f"{profile.file}: {profile.note}")
        return
    title = f"{profile.file} at {show_point(profile.point)}, where the time goes"
    yield make_printable(f"{title}: {len(profile.top)} of {len(profile.costs)} kinds of operators")
    if profile.seconds > 2 * profile.plain_seconds:
        change = f"{format_seconds(profile.seconds)} instead of {format_seconds(profile.plain_seconds)}"
        yield f"  (a call takes {change} under the profiler: many small operators look slower than they are)"
    rows = [(cost.operator, f"{cost.share:.0%}", format_seconds(cost.seconds), cost.module) for cost in profile.top]
    width = max((len(cost.operator) for cost in profile.top), default=0)
    lines = [f"  {share:>4} {took:>9}  {operator:<{width}}  {module}" for operator, share, took, module in rows]
    yield from map(make_printable, lines if fits_terminal(lines) else stack_rows([("", "", "", ""), *rows]))
