"""fairway reduce RECIPE"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import ProgressLine, show_loading

OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="The folder for repro.py and report.md.")
]
ExporterOption = Annotated[
    str | None,
    typer.Option("--exporter", metavar="dynamo|trace", help="The exporter to run. Default: the first that fails."),
]
CheckOption = Annotated[
    str | None,
    typer.Option(
        "--check", metavar="CMD", help="A command to run with each candidate script; exit code 0 keeps the script."
    ),
]
BudgetOption = Annotated[
    str, typer.Option("--budget", metavar="TIME", help="Stop after this time with the best script so far: 90s, 5m.")
]


def reduce(
    recipe: options.RecipeArgument,
    output: OutputOption = None,
    exporter: ExporterOption = None,
    check: CheckOption = None,
    budget: BudgetOption = "5m",
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    timeout: options.TimeoutOption = "1m",
    json: options.JsonOption = False,
) -> int:
    """Cut a failing model down to a minimal script.

    The script fails in the same way as the model's export.
    """
    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    budget_seconds = options.parse_duration("--budget", budget)
    trial_seconds = options.parse_duration("--timeout", timeout)

    with show_loading():
        from fairway.convert.export import preload_modules
        from fairway.debug.reduce.reduce import ReduceSettings, reduce_subject
        from fairway.debug.reduce.trial_export import EXPORTERS
        from fairway.model.recipe import load_subject

        if exporter is not None:
            options.check_choice("--exporter", exporter, EXPORTERS)
        subject = load_subject(recipe, overrides)
        preload_modules()
    folder = output or Path(f"reduced-{subject.name}")
    progress = ProgressLine()
    try:
        settings = ReduceSettings(exporter, check, budget_seconds, trial_seconds)
        reduced = reduce_subject(subject, folder, settings, progress)
    finally:
        progress.close()
    if reduced is None:
        note = "nothing to reduce: torch's own exporter gives a correct file at the sizes and values tested"
        print(json_module.dumps({"failure": None, "note": note}, indent=1) if json else note)
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
        "trials": reduced.trials,
        "seconds": round(reduced.seconds, 1),
    }
    print(json_module.dumps(result, indent=1) if json else _format_reduction(result))
    return 1


def _format_reduction(result: dict[str, object]) -> str:
    status = "fails in the same way" if result["reproduced"] else "does NOT fail in the same way"
    ended = "" if result["finished"] else "; the time ran out, so a smaller script may exist"
    return (
        f"{result['failure']}\n"
        f"  {result['calls_before']} calls cut down to {result['calls']}, {result['lines']} lines in forward{ended}\n"
        f"  {result['repro']} {status} when run alone\n"
        f"  {result['report']} is ready to send"
    )
