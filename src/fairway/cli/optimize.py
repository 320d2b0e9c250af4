"""fairway optimize model.onnx -o faster.onnx"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress, loading
from fairway.diagnostics.render import printable

if TYPE_CHECKING:
    from fairway.tune.optimize.optimize_result import FileSize, Optimised


def optimize(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The file to optimise; it stays as it is.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Unless told, MODEL.optimised.onnx beside it."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="RECIPE", help="Judge against PyTorch, not just against the file."),
    ] = None,
    smaller: Annotated[bool, typer.Option("--smaller", help="A smaller file is worth it, even 5 % slower.")] = False,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="SIZES", help="Time at this point, e.g. batch=8,time=100. Repeatable."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Time for each file at each point.")] = 1.0,
    threads: Annotated[int, typer.Option("--threads", metavar="N", help="All cores unless told.")] = 0,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    trust: options.TrustOption = False,
    level: options.LevelOption = "standard",
    timeout: options.TimeoutOption = 600.0,
    memory: options.MemoryOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    json: options.JsonOption = False,
) -> int:
    """Try optimisers on a file; keep what makes it faster and leaves its answers as they are."""
    said = options.overrides(inputs, dims, checkpoint, trust)
    limit = options.parse_memory(memory)
    target = output or model.with_name(f"{model.stem}.optimised.onnx")

    with loading():
        from fairway.convert.export import make_settings
        from fairway.model.recipe import load_subject
        from fairway.tune.bench.bench import check_timing
        from fairway.tune.optimize.optimize import OptimizeGoal, optimize_file

        check_timing(seconds, (threads,) if threads else ())
        settings = make_settings(level, (), None, True, timeout, limit, judging=True)
        subject = None if against is None else load_subject(against, said)
    wanted = OptimizeGoal(smaller, tuple(at or ()), seconds, threads, overwrite=overwrite)
    progress = Progress()
    try:
        found = optimize_file(model, target, subject, said, settings, wanted, progress)
    finally:
        progress.close()
    if json:
        record = {"verdict": None, "path": None} if found.result is None else found.result.record
        path = None if found.result is None else str(found.result.path)
        print(json_module.dumps({**record, "optimised": found.as_dict(), "path": path}, indent=1, default=str))
    else:
        print("\n".join(show(found)))
    return 0 if found.result is not None else 1


def show(found: Optimised) -> Iterator[str]:
    """The story of each pass, then what they come to."""
    width = max(len(one.name) for one in found.tried)
    for one in found.tried:
        timed = f": {one.speeds}" if one.speeds is not None else ""
        yield printable(f"  {one.name:<{width}}  {'KEPT' if one.kept else 'left out'}, {one.reason}{timed}")
        if one.size is not None and one.kept:
            yield f"  {'':<{width}}  {_size(one.size)}"
    if found.result is None or found.after is None:
        yield printable(f"nothing helped, so nothing was written; {found.source} is as good as it gets here")
        return
    yield f"  {'together':<{width}}  {found.together}"
    yield f"  {'':<{width}}  from {_size(found.before)} to {_size(found.after)}"
    yield f"  {'judged':<{width}}  against {found.judged_against}"
    yield str(found.result)


def _size(size: FileSize) -> str:
    return f"{size.nodes} nodes, {size.bytes / 1e6:.2f} MB"
