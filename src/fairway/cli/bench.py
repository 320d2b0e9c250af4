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
from fairway.cli.show import Progress
from fairway.diagnostics.columns import fit, stacked
from fairway.diagnostics.errors import complain
from fairway.diagnostics.render import printable

if TYPE_CHECKING:
    from fairway.tune.bench.bench_result import ArmRow, AtPoint, Bench, Speed
    from fairway.tune.bench.profile import Profile


def bench(
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="ONNX files with the same inputs.")],
    against: Annotated[
        str | None, typer.Option("--against", metavar="RECIPE", help="Time PyTorch eager and torch.compile too.")
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="SIZES", help="A point, e.g. batch=8,time=100. Repeatable. Three unless told."),
    ] = None,
    levels: Annotated[
        str, typer.Option("--levels", metavar="LIST", help="ONNX Runtime's: all, extended, basic, none.")
    ] = "all,none",
    threads: Annotated[
        str | None,
        typer.Option("--threads", metavar="LIST", help="E.g. 1,4. All cores unless told; ONNX Runtime with 1 besides."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Time for each arm at each point.")] = 1.0,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="OUT.svg", help="Draw the durations.")] = None,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    trust: options.TrustOption = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="An arm that gives no answer for so long is out.")
    ] = 120.0,
    memory: options.MemoryOption = None,
    json: options.JsonOption = False,
) -> int:
    """Time files beside PyTorch and other engines, with intervals: is one truly faster?"""
    said = options.overrides(inputs, dims, checkpoint, trust)
    limit = options.parse_memory(memory)
    counts = tuple(_count(part) for part in threads.split(",")) if threads else ()
    if plot is not None and not plot.absolute().parent.is_dir():
        raise complain("FW009", f"the folder {plot.parent} does not exist")

    from fairway.tune.bench.bench import BenchRequest
    from fairway.tune.bench.bench import bench as run
    from fairway.tune.bench.timing_chart import draw
    from fairway.workers.attempt import Limits

    named = tuple(part.strip() for part in levels.split(","))
    wanted = BenchRequest(named, counts, tuple(at or ()), seconds, Limits(timeout, limit))
    progress = Progress(forks=False)
    try:
        with redirect_stdout(sys.stderr):  # a recipe may print; standard output is for the result
            found = run(files, against, said, wanted, progress)
    finally:
        progress.close()
    if plot is not None:
        plot.write_text(draw(found))
    print(json_module.dumps(found.as_dict(), indent=1) if json else "\n".join(show(found)))
    return 0 if found.timed else 1


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise complain("FW006", f"--threads: {text!r:.80} is no number", todo=("Write numbers: --threads 1,4",))
    return int(text)


def show(found: Bench) -> Iterator[str]:
    """The whole result as lines for a terminal or a log."""
    for note in found.files:
        mark = "" if note.trusted else "NOT VERIFIED: "
        yield printable(f"{note.path}  {mark}{note.about}")
    where = f"{found.machine['cpu']}, {found.machine['cores']} cores, load {found.machine['load']} at the end"
    yield printable(f"{where}; sizes by {found.sizes_from}; {found.seconds:g} s for each arm at each point")
    if found.machine["load"] > 1.5 * found.machine["cores"]:
        yield "the machine was busy with other things: intervals are wide, milliseconds not those of an idle one"
    for at in found.points:
        yield ""
        yield from _point(at)
    yield ""
    yield from _arms(found.arms)
    for profile in found.profiles:
        yield ""
        yield from _profile(profile)


def _point(at: AtPoint) -> Iterator[str]:
    from fairway.model.dims import show as show_point
    from fairway.tune.bench.bench_result import show_seconds

    rows: list[tuple[str, ...]] = [(f"at {show_point(at.point)}", "p50", "p95", "p99", "speed")]
    for speed in at.speeds:
        rows.append((speed.arm, *map(show_seconds, (speed.p50, speed.p95, speed.p99)), _ratio(speed)))
    rows += [(name, "-", "-", "-", f"failed: {why}") for name, why in at.failures.items()]
    width = max(len(row[0]) for row in rows[1:]) if rows[1:] else 0
    lines = [f"{arm:<{width}}  {p50:>9} {p95:>9} {p99:>9}  {last}" for arm, p50, p95, p99, last in rows]
    yield from map(printable, lines if fit(lines) else [rows[0][0], *stacked(rows)])


def _ratio(speed: Speed) -> str:
    return "1 (the others are compared with this)" if speed.ratio is None else str(speed.ratio)


def _arms(arms: tuple[ArmRow, ...]) -> Iterator[str]:
    from fairway.tune.bench.bench_result import show_seconds

    rows = [("each in a process of its own", "loaded in", "peak memory")]
    for arm in arms:
        ready = "-" if arm.ready_seconds is None else show_seconds(arm.ready_seconds)
        peak = "-" if arm.peak_bytes is None else f"{arm.peak_bytes / 1e6:.0f} MB"
        rows.append((arm.name, ready, peak))
    width = max((len(arm.name) for arm in arms), default=0)
    lines = [f"{name:<{width}}  {ready:>9} {peak:>12}" for name, ready, peak in rows]
    yield from map(printable, lines if fit(lines) else [rows[0][0], *stacked(rows)])


def _profile(profile: Profile) -> Iterator[str]:
    from fairway.model.dims import show as show_point
    from fairway.tune.bench.bench_result import show_seconds

    if profile.note:
        yield printable(f"{profile.file}: {profile.note}")
        return
    title = f"{profile.file} at {show_point(profile.point)}, where the time goes"
    yield printable(f"{title}: {len(profile.top)} of {len(profile.costs)} kinds of operators")
    if profile.seconds > 2 * profile.plain_seconds:
        told = f"{show_seconds(profile.seconds)} instead of {show_seconds(profile.plain_seconds)}"
        yield f"  (a call takes {told} under the profiler: what is small and many looks larger than it is)"
    rows = [(cost.operator, f"{cost.share:.0%}", show_seconds(cost.seconds), cost.module) for cost in profile.top]
    width = max((len(cost.operator) for cost in profile.top), default=0)
    lines = [f"  {share:>4} {took:>9}  {operator:<{width}}  {module}" for operator, share, took, module in rows]
    yield from map(printable, lines if fit(lines) else stacked([("", "", "", ""), *rows]))
