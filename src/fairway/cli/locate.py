"""fairway locate model.onnx RECIPE"""

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

    def judge(subject: Subject, settings: Settings, progress: Progress) -> Result:
        from fairway.debug.find_wrong_node import locate_subject

        return locate_subject(subject, model, settings, data, against, progress)

    said = options.overrides(inputs, dims, checkpoint, trust)
    return judge_and_show(recipe, said, level, timeout, memory, json, judge)
