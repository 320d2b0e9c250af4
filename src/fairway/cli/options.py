"""Arguments and options that several commands share, with their parsers and completions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.model.recipe import Overrides
from fairway.model.spec import parse_dim

Completion = Callable[[str], list[str]]

LEVELS = ("quick", "standard", "deep")

_RECIPE = re.compile(r"\.py(:\w*)?$")
_MODEL = re.compile(r"\.onnx(:\w*)?$")
_DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "": 1}


def complete_from(*choices: str) -> Completion:
    """Return a completion that offers these words to a shell."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def complete_routes(incomplete: str) -> list[str]:
    from fairway.convert.ladder.route import ROUTES

    return complete_from(*ROUTES)(incomplete)


def check_model(context: typer.Context, param: typer.CallbackParam, value: object) -> object:
    """Refuse a recipe given where an ONNX file is expected: swapped arguments are a common slip."""
    for place in value if isinstance(value, list | tuple) else [value]:
        if not context.resilient_parsing and _RECIPE.search(str(place)):
            raise _make_order_error(context, param, f"expected an ONNX file, got the recipe {str(place)!r:.200}")
    return value


def check_recipe(context: typer.Context, param: typer.CallbackParam, value: object) -> object:
    """Refuse an ONNX file given where a recipe is expected."""
    if not context.resilient_parsing and _MODEL.search(str(value)):
        seen = f"expected a recipe, got the ONNX file {str(value)!r:.200}"
        arguments = [p for p in context.command.params if p.param_type_name == "argument"]
        if param in arguments and len(arguments) == 1:
            todo = (f"To judge an ONNX file against its model: fairway verify {value!s:.200} RECIPE",)
            raise complain(Code.NOT_A_COMMAND, f"RECIPE: {seen}", todo=todo)
        raise _make_order_error(context, param, seen)
    return value


def check_data(context: typer.Context, param: typer.CallbackParam, value: object) -> object:
    """Refuse an ONNX file given where data is expected."""
    if not context.resilient_parsing and _MODEL.search(str(value)):
        raise _make_order_error(context, param, f"expected data, got the ONNX file {str(value)!r:.200}")
    return value


def _make_order_error(context: typer.Context, param: typer.CallbackParam, seen: str) -> UserError:
    label = param.metavar if param.param_type_name == "argument" else param.opts[0]
    arguments = [p.metavar or "" for p in context.command.params if p.param_type_name == "argument"]
    order = " ".join((context.command_path, *arguments))
    todo = (f"Give the arguments in this order: {order}",)
    return complain(Code.NOT_A_COMMAND, f"{label}: {seen}", todo=todo)


def model_argument(help_text: str) -> Any:
    return typer.Argument(metavar="MODEL.onnx", help=help_text, callback=check_model)


RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="path/to/recipe.py[:name], a .pt2 file, a transformers folder, or module:Net with --input.",
        callback=check_recipe,
    ),
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="RECIPE",
        help="The PyTorch model: path/to/recipe.py[:name], or package.module:Net with --input.",
        callback=check_recipe,
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="SPEC", help="An input, e.g. 'acc: float32[batch, time, 3]'. Repeatable."),
]
DimOption = Annotated[
    list[str] | None, typer.Option("--dim", metavar="DIM", help="Bounds, e.g. time=10..2000, seq%8. Repeatable.")
]
CheckpointOption = Annotated[Path | None, typer.Option("--checkpoint", metavar="FILE", help="Weights to load.")]
CheckpointKeyOption = Annotated[
    str | None,
    typer.Option("--checkpoint-key", metavar="KEY", help="The entry or the prefix of the weights, e.g. ema."),
]
TrustOption = Annotated[bool, typer.Option("--trust", help="Let a pickled checkpoint run its code.")]
LevelOption = Annotated[
    str,
    typer.Option(
        "--level",
        metavar="quick|standard|deep",
        help="How much evidence to gather.",
        autocompletion=complete_from(*LEVELS),
    ),
]
ExportLevelOption = Annotated[
    str,
    typer.Option(
        "--level",
        metavar="none|quick|standard|deep",
        help="How much evidence to gather.",
        autocompletion=complete_from("none", *LEVELS),
    ),
]
OpsetOption = Annotated[
    int | None, typer.Option("--opset", metavar="N", help="Write exactly this opset, or fail with an error.")
]
RouteOption = Annotated[
    list[str] | None,
    typer.Option(
        "--route",
        metavar="NAME",
        help="Try only this route; see `fairway routes`. Repeatable.",
        autocompletion=complete_routes,
    ),
]
RemediesOption = Annotated[bool, typer.Option("--remedies/--no-remedies", help="Repair known defects on the way.")]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="embed|copy|link",
        help="Store weights in the file or beside it, or link to the checkpoint.",
        autocompletion=complete_from("embed", "copy", "link"),
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Your own samples, by input name: a .npz, .pt or .safetensors file.",
        callback=check_data,
    ),
]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="Time limit of each attempt: 90s, 10m, 1h.")
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Memory limit of each attempt, e.g. 8G.")
]
JobsOption = Annotated[int, typer.Option("--jobs", metavar="N", help="The number of workers.")]
OnOption = Annotated[str, typer.Option("--on", metavar="processes|ray", help="Run the workers here or on Ray.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


def parse_overrides(
    inputs: list[str] | None,
    dims: list[str] | None,
    checkpoint: Path | None,
    trust: bool,
    checkpoint_key: str | None = None,
) -> Overrides:
    """Return what the options change in the recipe."""
    bounds: dict[str, tuple[int, int]] = {}
    multiples: dict[str, int] = {}
    for text in dims or ():
        name, size_range, multiple = parse_dim(text)
        if size_range is not None:
            bounds[name] = size_range
        if multiple is not None:
            multiples[name] = multiple
    return Overrides(tuple(inputs or ()), bounds, multiples, checkpoint, trust, checkpoint_key)


def parse_memory(text: str | None, option: str = "--memory") -> int:
    """Return the bytes of 8G, 500M or a plain number; 0 if there is no text."""
    if text is None:
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(?:i?[bB])?", text.strip())
    if match is None:
        raise _bad_value(option, "a size such as 8G or 500M", text)
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def parse_duration(option: str, text: str) -> float:
    """Return the seconds of 90s, 5m, 1h or a plain number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", text.strip())
    if match is None:
        raise _bad_value(option, "a time such as 90s, 5m or 1h", text)
    return float(match[1]) * _DURATION_UNITS[match[2]]


def parse_percentage(option: str, text: str) -> float:
    """Return the fraction that 1% or 0.01 stands for."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    if match is None:
        raise _bad_value(option, "a percentage such as 1% or 0.01", text)
    return float(match[1]) / (100 if match[2] else 1)


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise _bad_value(option, f"one of {', '.join(choices)}", value)


def check_positive(option: str, number: int | None) -> None:
    if number is not None and number < 1:
        raise _bad_value(option, "a number of at least 1", str(number))


def _bad_value(option: str, expected: str, text: str) -> UserError:
    todo = (f"Write {expected} after {option}.",)
    return complain(Code.UNKNOWN_OPTION, f"{option}: expected {expected}, got {text!r:.80}", todo=todo)
