"""fairway export RECIPE -o out.onnx"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress, loading, result_status, settled, show_result


def export(
    recipe: options.RecipeArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The ONNX file to write.")],
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    trust: options.TrustOption = False,
    opset: Annotated[int | None, typer.Option("--opset", metavar="N", help="Exactly this opset, or an error.")] = None,
    level: Annotated[
        str,
        typer.Option(
            "--level",
            metavar="none|quick|standard|deep",
            help="How closely to look.",
            autocompletion=options.words("none", *options.LEVELS),
        ),
    ] = "standard",
    weights: options.WeightsOption = None,
    route: options.RouteOption = None,
    remedies: Annotated[bool, typer.Option("--remedies/--no-remedies", help="Repair known defects on the way.")] = True,
    data: options.DataOption = None,
    timeout: options.TimeoutOption = 600.0,
    memory: options.MemoryOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    json: options.JsonOption = False,
    emit_script: Annotated[
        bool, typer.Option("--emit-script", help="Print the equivalent Python; export nothing.")
    ] = False,
) -> int:
    """Export a model, and accept the file only on evidence over every shape declared."""
    said = options.overrides(inputs, dims, checkpoint, trust)
    limit = options.parse_memory(memory)
    if emit_script:
        from fairway.cli.emit_script import emit

        routes = tuple(route or ())
        print(emit(recipe, output, said, level, routes, opset, remedies, timeout, limit, data, overwrite, weights))
        return 0

    from fairway.record.delivery import check_target

    check_target(output, overwrite)

    with loading():
        from fairway.convert.export import export_subject, make_settings
        from fairway.model.recipe import load_subject

        settings = make_settings(level, tuple(route or ()), opset, remedies, timeout, limit, weights)
        settled()
        subject = load_subject(recipe, said)
    progress = Progress()
    try:
        result = export_subject(subject, output, settings, data, overwrite, progress)
    finally:
        progress.close()
    show_result(result, json)
    return result_status(result)
