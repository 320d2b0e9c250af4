"""fairway reduce RECIPE"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress, loading
from fairway.diagnostics.errors import complain


def reduce(
    recipe: options.RecipeArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Where repro.py and report.md go.")
    ] = None,
    exporter: Annotated[
        str | None, typer.Option("--exporter", metavar="dynamo|trace", help="The first that fails, unless told.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="CMD", help="Run with each candidate script; exit code 0 keeps it."),
    ] = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Then hand over the best: 90s, 5m.")] = "5m",
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    trust: options.TrustOption = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Time limit of each trial.")] = 60.0,
    json: options.JsonOption = False,
) -> int:
    """Cut a model whose export fails down to the smallest script that fails in the same way."""
    said = options.overrides(inputs, dims, checkpoint, trust)
    seconds = options.parse_time("--budget", budget)

    with loading():
        from fairway.convert.export import warm_up
        from fairway.debug.reduce.reduce import reduce_subject
        from fairway.debug.reduce.trial_export import EXPORTERS
        from fairway.model.recipe import load_subject

        if exporter is not None and exporter not in EXPORTERS:
            raise complain("FW006", f"exporter {exporter!r}; the exporters are {', '.join(EXPORTERS)}")
        subject = load_subject(recipe, said)
        warm_up()
    folder = output or Path(f"reduced-{subject.name}")
    progress = Progress()
    try:
        reduced = reduce_subject(subject, folder, exporter, check, seconds, timeout, progress)
    finally:
        progress.close()
    if reduced is None:
        fine = "nothing to reduce: torch's own exporter gives a right file at the sizes and values tried"
        print(json_module.dumps({"failure": None, "note": fine}, indent=1) if json else fine)
        return 0
    result = {
        "repro": str(folder / "repro.py"),
        "report": str(folder / "report.md"),
        "failure": str(reduced.seen.signature),
        "calls_before": reduced.calls,
        "calls": len(reduced.program.calls),
        "operators": reduced.program.operators,
        "lines": reduced.lines,
        "reproduced": reduced.reproduced,
        "finished": reduced.finished,
        "trials": reduced.tried,
        "seconds": round(reduced.seconds, 1),
    }
    print(json_module.dumps(result, indent=1) if json else _text(result))
    return 1


def _text(result: dict[str, object]) -> str:
    alone = "fails in the same way on its own" if result["reproduced"] else "does NOT fail in the same way on its own"
    ended = "" if result["finished"] else "; the time was up, it may get smaller still"
    return (
        f"{result['failure']}\n"
        f"  {result['calls_before']} calls cut down to {result['calls']}, {result['lines']} lines in forward{ended}\n"
        f"  {result['repro']} {alone}\n"
        f"  {result['report']} is ready to send"
    )
