"""fairway verify model.onnx RECIPE"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress, result_status, show_result


def verify(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="Any ONNX file, whoever made it.")],
    recipe: options.RecipeArgument,
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
    """Judge an ONNX file against the model it is said to be."""
    said = options.overrides(inputs, dims, checkpoint, trust)
    limit = options.parse_memory(memory)

    from fairway.exporting import make_settings, verify_subject
    from fairway.subject.recipe import load_subject

    settings = make_settings(level, (), None, True, timeout, limit, judging=True)
    with redirect_stdout(sys.stderr):  # a recipe may print; standard output is for the result
        subject = load_subject(recipe, said)
    progress = Progress()
    try:
        result = verify_subject(subject, model, settings, data, progress)
    finally:
        progress.close()
    show_result(result, json)
    return result_status(result)
