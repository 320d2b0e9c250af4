"""fairway sensitivity MODEL.onnx RECIPE -o FOLDER"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.quantize import (
    ChannelOption,
    DropOption,
    MethodOption,
    MetricOption,
    SampleData,
    SamplesOption,
    load_quantize_subject,
)
from fairway.cli.show import ProgressLine, show_loading

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help="The folder for trials, ranking, plot and list."),
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help="Stop after this time with the best ranking so far: 90s, 10m."),
]
DepthOption = Annotated[
    int | None, typer.Option("--depth", metavar="N", help="Group by the first N names of a module's path.")
]


def sensitivity(
    model: Annotated[Path, options.model_argument("A float file.")],
    recipe: options.RecipeOption = None,
    output: OutputOption = None,
    budget: BudgetOption = None,
    depth: DepthOption = None,
    max_drop: DropOption = "1%",
    metric: MetricOption = None,
    method: MethodOption = "minmax",
    per_channel: ChannelOption = True,
    data: SampleData = None,
    samples: SamplesOption = 32,
    jobs: options.JobsOption = 1,
    on: options.OnOption = "processes",
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    overwrite: options.OverwriteOption = False,
    json: options.JsonOption = False,
) -> int:
    """Rank layers by the quality lost when quantized.

    Also write the list of layers to keep in float, for `fairway quantize --keep`. A run that was stopped continues;
    --overwrite starts again.
    """
    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    drop = options.parse_percentage("--max-drop", max_drop)
    seconds = None if budget is None else options.parse_duration("--budget", budget)

    with show_loading():
        from fairway.tune.quantize.quality_budget import Budget
        from fairway.tune.quantize.quantize_file import QuantizeSettings
        from fairway.tune.sensitivity import SensitivityRequest, measure_sensitivity
        from fairway.workers.fanout import Parallelism

        settings = QuantizeSettings("int8-static", method, per_channel, samples, metric, Budget(drop), data=data)
        subject = load_quantize_subject(model, recipe, overrides)
    progress = ProgressLine(forks=False)
    folder = output or model.with_suffix(".sensitivity")
    try:
        result = measure_sensitivity(
            model,
            subject,
            folder,
            settings,
            SensitivityRequest(seconds, depth, Parallelism(jobs, on), overwrite),
            progress,
        )
    finally:
        progress.close()
    print(json_module.dumps(result.as_dict(), indent=1) if json else result)
    return 0
