"""fairway locate model.onnx RECIPE"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress, result_status, show_result


def locate(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A file that is wrong, whoever made it.")],
    recipe: options.RecipeArgument,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="RIGHT.onnx", help="A right file, such as the one before optimising."),
    ] = None,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    trust: options.TrustOption = False,
    level: options.LevelOption = "standard",
    data: options.DataOption = None,
    timeout: options.TimeoutOption = 600.0,
    memory: options.MemoryOption = None,
    json: options.JsonOption = False,
) -> int:
    """Name the first node of a wrong file that differs from PyTorch, its module, and your line."""
    said = options.overrides(inputs, dims, checkpoint, trust)
    limit = options.parse_memory(memory)

    from fairway.exporting import make_settings
    from fairway.locating import locate_subject
    from fairway.subject.recipe import load_subject

    settings = make_settings(level, (), None, True, timeout, limit, judging=True)
    with redirect_stdout(sys.stderr):  # a recipe may print; standard output is for the result
        subject = load_subject(recipe, said)
    progress = Progress()
    try:
        result = locate_subject(subject, model, settings, data, against, progress)
    finally:
        progress.close()
    show_result(result, json)
    return result_status(result)
