"""fairway optimize model.onnx -o faster.onnx"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.cli.show import ProgressLine, show_loading
from fairway.diagnostics.render import make_printable

if TYPE_CHECKING:
    from fairway.tune.optimize.optimize_result import FileSize, OptimizeResult


def optimize(
    model: Annotated[Path, options.model_argument("The file to optimize. It is not changed.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write. Default: MODEL.optimized.onnx."),
    ] = None,
    recipe: options.RecipeOption = None,
    smaller: Annotated[
        bool, typer.Option("--smaller", help="Accept a smaller file even if it is up to 5 % slower.")
    ] = False,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="SIZES", help="Time at this point, e.g. batch=8,time=100. Repeatable."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Time for each file at each point.")] = 1.0,
    threads: Annotated[int, typer.Option("--threads", metavar="N", help="Threads; 0 means all cores.")] = 0,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    level: options.LevelOption = "standard",
    timeout: options.TimeoutOption = "10m",
    memory: options.MemoryOption = None,
    overwrite: options.OverwriteOption = False,
    json: options.JsonOption = False,
) -> int:
    """Make a file faster without changing its outputs.

    Several optimizers are tried one after the other. Those that help are kept, if the outputs stay right.
    With --recipe they are compared with PyTorch, otherwise with the outputs of the file itself.
    """
    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    attempt_seconds = options.parse_duration("--timeout", timeout)
    memory_bytes = options.parse_memory(memory)
    target = output or model.with_name(f"{model.stem}.optimized.onnx")

    with show_loading():
        from fairway.convert.export import make_judging_settings
        from fairway.model.recipe import load_subject
        from fairway.tune.bench.bench import check_timing
        from fairway.tune.optimize.optimize import OptimizeGoal, optimize_file
        from fairway.workers.attempt import Limits

        check_timing(seconds, (threads,) if threads else ())
        settings = make_judging_settings(level, Limits(attempt_seconds, memory_bytes))
        subject = None if recipe is None else load_subject(recipe, overrides)
    goal = OptimizeGoal(smaller, tuple(at or ()), seconds, threads, overwrite=overwrite, overrides=overrides)
    progress = ProgressLine()
    try:
        outcome = optimize_file(model, target, subject, settings, goal, progress)
    finally:
        progress.close()
    if json:
        record = {"verdict": None, "path": None} if outcome.result is None else outcome.result.record.as_dict()
        path = None if outcome.result is None else str(outcome.result.path)
        print(json_module.dumps({**record, "optimized": outcome.as_dict(), "path": path}, indent=1, default=str))
    else:
        print("\n".join(format_optimized(outcome)))
    return 0 if outcome.result is not None else 1


def format_optimized(outcome: OptimizeResult) -> Iterator[str]:
    """Yield a line for each pass, then the overall result."""
    width = max(len(attempt.name) for attempt in outcome.tried)
    for attempt in outcome.tried:
        timed = f": {attempt.speeds}" if attempt.speeds is not None else ""
        action = "KEPT" if attempt.kept else "left out"
        yield make_printable(f"  {attempt.name:<{width}}  {action}, {attempt.reason}{timed}")
        if attempt.size is not None and attempt.kept:
            yield f"  {'':<{width}}  {_format_size(attempt.size)}"
    if outcome.result is None or outcome.after is None:
        yield make_printable(f"nothing helped, so nothing was written; {outcome.source} stays the best file")
        return
    yield f"  {'together':<{width}}  {outcome.together}"
    yield f"  {'':<{width}}  from {_format_size(outcome.before)} to {_format_size(outcome.after)}"
    yield f"  {'judged':<{width}}  against {outcome.judged_against}"
    yield str(outcome.result)


def _format_size(size: FileSize) -> str:
    return f"{size.nodes} nodes, {size.bytes / 1e6:.2f} MB"
