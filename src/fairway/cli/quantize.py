"""fairway quantize MODEL.onnx RECIPE -o out.onnx"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli import options
from fairway.cli.show import ProgressLine, show_loading
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

if TYPE_CHECKING:
    from fairway.model.recipe import Overrides
    from fairway.model.subject import Subject

SampleData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Your own samples, by input name: a folder of .npz files, or one with a sample in each row.",
        callback=options.check_data,
    ),
]
MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="minmax|entropy|percentile",
        help="How ranges are computed from samples.",
        autocompletion=options.complete_from("minmax", "entropy", "percentile"),
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="sqnr|cosine|kl|top1|recipe",
        help="The metric for lost quality.",
        autocompletion=options.complete_from("sqnr", "cosine", "kl", "top1", "recipe"),
    ),
]
SamplesOption = Annotated[int, typer.Option("--samples", metavar="N", help="How many samples to use.")]
DropOption = Annotated[
    str, typer.Option("--max-drop", metavar="PERCENT", help="How much quality may be lost, e.g. 1%.")
]
ChannelOption = Annotated[
    bool,
    typer.Option(
        "--per-channel/--per-tensor", help="One scale for each channel of a weight, or one for the whole weight."
    ),
]


SchemeOption = Annotated[
    str,
    typer.Option(
        "--scheme",
        metavar="int8-dynamic|int8-static|int4-weights|fp16|bf16|auto",
        help="The schemes to try.",
        autocompletion=options.complete_from("int8-dynamic", "int8-static", "int4-weights", "fp16", "bf16", "auto"),
    ),
]
MinSpeedupOption = Annotated[
    float | None,
    typer.Option("--min-speedup", metavar="X", help="Ship only a file that is at least this many times as fast."),
]
MaxSizeOption = Annotated[
    str | None,
    typer.Option(
        "--max-size",
        metavar="PERCENT",
        help="Ship only a file of at most this size: a share of the float file, e.g. 50%.",
    ),
]
KeepOption = Annotated[
    Path | None,
    typer.Option(
        "--keep", metavar="FILE", help="Layers to keep in float: the do_not_quantize.json of `fairway sensitivity`."
    ),
]


def quantize(
    model: Annotated[Path, options.model_argument("A float file, preferably a verified one.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The ONNX file to write.")],
    recipe: options.RecipeOption = None,
    scheme: SchemeOption = "auto",
    method: MethodOption = "minmax",
    per_channel: ChannelOption = True,
    data: SampleData = None,
    samples: SamplesOption = 32,
    metric: MetricOption = None,
    max_drop: DropOption = "1%",
    min_speedup: MinSpeedupOption = None,
    max_size: MaxSizeOption = None,
    keep: KeepOption = None,
    inputs: options.InputOption = None,
    dims: options.DimOption = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    overwrite: options.OverwriteOption = False,
    json: options.JsonOption = False,
) -> int:
    """Quantize a file, and ship it only if it is worth it.

    Variants are judged on samples that were not used to make them. Inputs and quality come from --recipe; without it,
    from the file's record.
    """
    overrides = options.parse_overrides(inputs, dims, checkpoint, trust, checkpoint_key)
    drop = options.parse_percentage("--max-drop", max_drop)
    size = None if max_size is None else options.parse_percentage("--max-size", max_size)

    from fairway.record.delivery import check_target

    check_target(output, overwrite)

    with show_loading():
        from fairway.tune.quantize.quality_budget import Budget
        from fairway.tune.quantize.quantize_file import QuantizeSettings, quantize_file

        nodes = () if keep is None else read_kept_nodes(keep, model)
        settings = QuantizeSettings(
            scheme, method, per_channel, samples, metric, Budget(drop, min_speedup, size), keep=nodes, data=data
        )
        subject = load_quantize_subject(model, recipe, overrides)
    progress = ProgressLine(forks=False)
    try:
        result = quantize_file(model, subject, output, settings, overwrite, progress)
    finally:
        progress.close()
    if json:
        shown = {**result.record.as_dict(), "path": str(result.path) if result.path else None}
        print(json_module.dumps(shown, indent=1, default=str))
    else:
        print(result)
    return 0 if result.path is not None else 1


def load_quantize_subject(model: Path, recipe: str | None, overrides: Overrides) -> Subject:
    """Return the recipe's subject, or one built from the file and its record."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)  # onnxruntime.quantization opens sessions that log
    from fairway.model.recipe import load_subject

    if recipe is not None:
        return load_subject(recipe, overrides)
    from fairway.judge.file_subject import build_file_subject
    from fairway.model.onnx_file import open_header
    from fairway.record.reader import compare_with_record

    header = open_header(model)
    return build_file_subject(header, compare_with_record(model)[0], overrides)


def read_kept_nodes(path: Path, model: Path) -> tuple[str, ...]:
    """Return the nodes that the file lists. It must have been made for this model."""
    from fairway.record.files import hash_file

    try:
        document = json_module.loads(path.read_text())
        sha256, nodes = document["sha256"], [str(node) for node in document["nodes"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        seen = f"--keep: expected a do_not_quantize.json, got {path}: {type(error).__name__}: {error}"
        raise complain(Code.UNKNOWN_OPTION, seen) from error
    if sha256 != hash_file(model):
        raise complain(Code.UNKNOWN_OPTION, f"--keep: {path} was made for another file than {model}")
    return tuple(nodes)
