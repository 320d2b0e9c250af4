"""fairway export RECIPE -o out.onnx"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import ProgressLine, freeze_imports, result_status, show_loading, show_result

EmitScriptOption = Annotated[
    bool, typer.Option("--emit-script", help="Print a Python script that does the same, and export nothing.")
]


def export(
    recipe: options.RecipeArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The ONNX file to write.")],
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    opset: options.OpsetOption = None,
    level: options.ExportLevelOption = "standard",
    weights: options.WeightsOption = None,
    route: options.RouteOption = None,
    remedies: options.RemediesOption = True,
    data: options.DataOption = None,
    timeout: options.TimeoutOption = "10m",
    memory: options.MemoryOption = None,
    overwrite: options.OverwriteOption = False,
    json: options.JsonOption = False,
    emit_script: EmitScriptOption = False,
) -> int:
    """Export a model and test the file at all declared sizes.

    The verdict is `verified` only if the file agrees with PyTorch at every sample.
    """
    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    seconds = options.parse_duration("--timeout", timeout)
    memory_bytes = options.parse_memory(memory)
    if emit_script:
        from fairway.cli.emit_script import write_script

        arguments = {
            "opset": opset,
            "level": level,
            "routes": tuple(route) if route else None,
            "remedies": None if remedies else False,
            "timeout": seconds,
            "memory": memory_bytes or None,
            "data": None if data is None else str(data),
            "weights": weights,
            "overwrite": overwrite or None,
        }
        print(write_script(recipe, output, overrides, arguments))
        return 0

    from fairway.record.delivery import check_target

    check_target(output, overwrite)

    with show_loading():
        from fairway.convert.export import export_subject, make_settings
        from fairway.model.recipe import load_subject
        from fairway.workers.attempt import Limits

        settings = make_settings(level, tuple(route or ()), opset, remedies, Limits(seconds, memory_bytes), weights)
        freeze_imports()
        subject = load_subject(recipe, overrides)
    progress = ProgressLine()
    try:
        result = export_subject(subject, output, settings, data, overwrite, progress)
    finally:
        progress.close()
    show_result(result, json)
    return result_status(result)
