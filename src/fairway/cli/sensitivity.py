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
    RecipeToo,
    SampleData,
    SamplesOption,
    load,
    share,
)
from fairway.cli.show import Progress, loading


def sensitivity(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A float file.")],
    recipe: RecipeToo = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Trials, ranking, plot and list go there.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Then the best ranking so far: 90s, 10m.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", metavar="N", help="Group by the first N names of a module's path.")
    ] = None,
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
    trust: options.TrustOption = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over, and forget the trials found.")] = False,
    json: options.JsonOption = False,
) -> int:
    """Rank the parts of a model by what is lost when each is quantised, and list those to leave in float."""
    said = options.overrides(inputs, dims, checkpoint, trust)
    drop = share("--max-drop", max_drop)
    seconds = None if budget is None else options.parse_time("--budget", budget)

    with loading():
        from fairway.tune.quantize.quality_budget import Budget
        from fairway.tune.quantize.quantize_file import Wishes
        from fairway.tune.sensitivity import sense_file
        from fairway.workers.fanout import Spreading

        wishes = Wishes("int8-static", method, per_channel, samples, metric, Budget(drop))
        subject = load(model, recipe, said)
    progress = Progress(forks=False)
    folder = output or model.with_suffix(".sensitivity")
    try:
        result = sense_file(
            model, subject, folder, wishes, data, seconds, depth, Spreading(jobs, on), overwrite, progress
        )
    finally:
        progress.close()
    print(json_module.dumps(result.as_dict(), indent=1) if json else result)
    return 0
