"""fairway verify model.onnx RECIPE"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fairway.cli import options
from fairway.cli.judge_options import JudgingOptions, judge_and_show
from fairway.cli.show import ProgressLine

if TYPE_CHECKING:
    from fairway.convert.result import Result
    from fairway.convert.types import Settings
    from fairway.model.subject import Subject


def verify(
    model: Annotated[Path, options.model_argument("The ONNX file to test, from any exporter.")],
    recipe: options.RecipeArgument,
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
    """Compare an ONNX file with the model it was made from."""

    def judge(subject: Subject, settings: Settings, progress: ProgressLine) -> Result:
        from fairway.convert.export import verify_subject

        return verify_subject(subject, model, settings, data, progress)

    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    request = JudgingOptions(recipe, overrides, level, timeout, memory, json)
    return judge_and_show(request, judge)
