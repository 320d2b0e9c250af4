"""fairway quantize MODEL.onnx RECIPE -o out.onnx"""

from __future__ import annotations

import json as json_module
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress, loading
from fairway.diagnostics.errors import complain

if TYPE_CHECKING:
    from fairway.model.recipe import Overrides
    from fairway.model.subject import Subject

RecipeToo = Annotated[
    str | None,
    typer.Argument(metavar="[RECIPE]", help="What to feed it and how good it is; without, its record tells."),
]
SampleData = Annotated[
    Path | None,
    typer.Option("--data", metavar="PATH", help="Samples: a folder of .npz files, or one whose rows are samples."),
]
MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="minmax|entropy|percentile",
        help="How ranges are made of samples.",
        autocompletion=options.words("minmax", "entropy", "percentile"),
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="sqnr|cosine|kl|top1|recipe",
        help="What the drop is measured by.",
        autocompletion=options.words("sqnr", "cosine", "kl", "top1", "recipe"),
    ),
]
SamplesOption = Annotated[int, typer.Option("--samples", metavar="N", help="How many samples to draw or hold.")]
DropOption = Annotated[str, typer.Option("--max-drop", metavar="SHARE", help="Quality that may be lost, e.g. 1%.")]
ChannelOption = Annotated[
    bool, typer.Option("--per-channel/--per-tensor", help="A scale for each channel of a weight, or one for all.")
]


def quantize(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A float file, best one that is verified.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The ONNX file to write.")],
    recipe: RecipeToo = None,
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme",
            metavar="int8-dynamic|int8-static|int4-weights|fp16|bf16|auto",
            help="What to try.",
            autocompletion=options.words("int8-dynamic", "int8-static", "int4-weights", "fp16", "bf16", "auto"),
        ),
    ] = "auto",
    method: MethodOption = "minmax",
    per_channel: ChannelOption = True,
    data: SampleData = None,
    samples: SamplesOption = 32,
    metric: MetricOption = None,
    max_drop: DropOption = "1%",
    min_speedup: Annotated[
        float | None, typer.Option("--min-speedup", metavar="X", help="At least so many times as fast.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", metavar="SHARE", help="Of the float file's size, e.g. 50%.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="FILE", help="What stays in float: do_not_quantize.json of `sensitivity`."),
    ] = None,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    trust: options.TrustOption = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    json: options.JsonOption = False,
) -> int:
    """Make a file smaller or faster, judge it on data held back, and ship it only if it is worth it."""
    said = options.overrides(inputs, dims, checkpoint, trust)
    drop = share("--max-drop", max_drop)
    size = None if max_size is None else share("--max-size", max_size)

    from fairway.record.delivery import check_target

    check_target(output, overwrite)

    with loading():
        from fairway.tune.quantize.quality_budget import Budget
        from fairway.tune.quantize.quantize_file import Wishes, quantize_file

        nodes = () if keep is None else kept_nodes(keep, model)
        wishes = Wishes(scheme, method, per_channel, samples, metric, Budget(drop, min_speedup, size), keep=nodes)
        subject = load(model, recipe, said)
    progress = Progress(forks=False)
    try:
        result = quantize_file(model, subject, output, wishes, data, overwrite, progress)
    finally:
        progress.close()
    if json:
        shown = {**result.record, "path": str(result.path) if result.path else None}
        print(json_module.dumps(shown, indent=1, default=str))
    else:
        print(result)
    return 0 if result.path is not None else 1


def load(model: Path, recipe: str | None, said: Overrides) -> Subject:
    """The recipe's subject, or the file's own, as its record tells of it."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)  # onnxruntime.quantization opens sessions of its own, and they talk
    from fairway.model.recipe import load_subject

    if recipe is not None:
        return load_subject(recipe, said)
    from fairway.judge.file_subject import file_subject
    from fairway.model.onnx_file import open_header
    from fairway.record.reader import compare_with_record

    header = open_header(model)
    return file_subject(header, compare_with_record(model)[0], said)


def kept_nodes(path: Path, model: Path) -> tuple[str, ...]:
    """The nodes that the file names, which must be about this model."""
    from fairway.record.files import hash_file

    try:
        told = json_module.loads(path.read_text())
        about, nodes = told["sha256"], [str(node) for node in told["nodes"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise complain("FW006", f"--keep {path} is no do_not_quantize.json: {type(error).__name__}: {error}") from error
    if about != hash_file(model):
        raise complain("FW006", f"--keep {path} is about other bytes than those of {model}")
    return tuple(nodes)


def share(option: str, text: str) -> float:
    """1% or 0.01."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    if found is None:
        raise complain("FW006", f"{option} {text!r} is no share", todo=("Write a share such as 1% or 0.01.",))
    return float(found[1]) / (100 if found[2] else 1)
