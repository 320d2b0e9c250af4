"""fairway verify model.onnx RECIPE"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.cli.judge_options import judge_and_show
from fairway.cli.show import Progress

if TYPE_CHECKING:
    from fairway.convert.ladder.climb import Settings
    from fairway.convert.result import Result
    from fairway.model.subject import Subject


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

    def judge(subject: Subject, settings: Settings, progress: Progress) -> Result:
        from fairway.convert.export import verify_subject

        return verify_subject(subject, model, settings, data, progress)

    said = options.overrides(inputs, dims, checkpoint, trust)
    return judge_and_show(recipe, said, level, timeout, memory, json, judge)
