"""fairway locate model.onnx RECIPE"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.cli.judge_options import JudgingOptions, judge_and_show
from fairway.cli.show import ProgressLine

if TYPE_CHECKING:
    from fairway.convert.result import Result
    from fairway.convert.types import Settings
    from fairway.model.subject import Subject


def locate(
    model: Annotated[Path, options.model_argument("A file with wrong outputs, from any exporter.")],
    recipe: options.RecipeArgument,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="RIGHT.onnx",
            help="A correct file to compare with, such as the one before optimization.",
        ),
    ] = None,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    level: options.LevelOption = "standard",
    data: options.DataOption = None,
    timeout: options.TimeoutOption = "10m",
    memory: options.MemoryOption = None,
    json: options.JsonOption = False,
) -> int:
    """Find the first wrong node of a file, and your line.

    Intermediate values are compared with PyTorch's, or with those of a correct file.
    """

    def judge(subject: Subject, settings: Settings, progress: ProgressLine) -> Result:
        from fairway.debug.find_wrong_node import locate_subject

        return locate_subject(subject, model, settings, data, against, progress)

    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    request = JudgingOptions(recipe, overrides, level, timeout, memory, json)
    return judge_and_show(request, judge)
