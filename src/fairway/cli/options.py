"""Options that several commands share, spelt once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fairway.diagnostics.errors import complain
from fairway.model.recipe import Overrides
from fairway.model.spec import parse_dim

Completer = Callable[[str], list[str]]


def words(*known: str) -> Completer:
    """What a shell's Tab key may put here."""
    return lambda incomplete: [word for word in known if word.startswith(incomplete)]


def routes(incomplete: str) -> list[str]:
    from fairway.convert.ladder.route import ROUTES

    return words(*ROUTES)(incomplete)


RecipeArgument = Annotated[
    str, typer.Argument(metavar="RECIPE", help="path/to/recipe.py[:name], or package.module:Net with --input.")
]
InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="SPEC", help="An input, e.g. 'acc: float32[batch, time, 3]'. Repeatable."),
]
DimOption = Annotated[
    list[str] | None, typer.Option("--dim", metavar="DIM", help="Bounds, e.g. time=10..2000, seq%8. Repeatable.")
]
CheckpointOption = Annotated[Path | None, typer.Option("--checkpoint", metavar="F", help="Weights to load.")]
TrustOption = Annotated[bool, typer.Option("--trust", help="Let a pickled checkpoint run its code.")]
LEVELS = ("quick", "standard", "deep")
LevelOption = Annotated[
    str,
    typer.Option("--level", metavar="quick|standard|deep", help="How closely to look.", autocompletion=words(*LEVELS)),
]
RouteOption = Annotated[
    list[str] | None,
    typer.Option(
        "--route", metavar="NAME", help="Only this rung; see `fairway routes`. Repeatable.", autocompletion=routes
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="embed|copy|link",
        help="In the file, beside it, or in the checkpoint still.",
        autocompletion=words("embed", "copy", "link"),
    ),
]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="F", help="Your own tensors: .npz, .pt or .safetensors by input name.")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Time limit of each attempt.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="Memory limit, e.g. 8G.")]
JobsOption = Annotated[int, typer.Option("--jobs", metavar="N", help="Workers.")]
OnOption = Annotated[str, typer.Option("--on", metavar="processes|ray", help="Where the workers are.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the record as JSON on standard output.")]


def overrides(inputs: list[str] | None, dims: list[str] | None, checkpoint: Path | None, trust: bool) -> Overrides:
    """What the options say on top of the recipe."""
    bounds: dict[str, tuple[int, int]] = {}
    multiples: dict[str, int] = {}
    for text in dims or ():
        name, range_, multiple = parse_dim(text)
        if range_ is not None:
            bounds[name] = range_
        if multiple is not None:
            multiples[name] = multiple
    return Overrides(tuple(inputs or ()), bounds, multiples, checkpoint, trust)


def parse_memory(text: str | None) -> int:
    """Bytes from 8G, 500M or a plain number; 0 where nothing was said."""
    if text is None:
        return 0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(?:i?[bB])?", text.strip())
    if found is None:
        raise complain("FW006", f"--memory {text!r} is no size", todo=("Write a size such as 8G or 500M.",))
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))


def parse_time(option: str, text: str) -> float:
    """Seconds from 90s, 5m, 1h or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text.strip())
    if found is None:
        raise complain("FW006", f"{option} {text!r} is no time", todo=("Write a time such as 90s, 5m or 1h.",))
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, None: 1}[found[2]]
