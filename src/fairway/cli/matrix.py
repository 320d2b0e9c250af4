"""fairway matrix RECIPE --torch 2.9.1,2.13.0"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress
from fairway.diagnostics.errors import complain

TorchOption = Annotated[
    str | None, typer.Option("--torch", metavar="V,V", help="Versions of torch; without it, the one installed.")
]
TransformersOption = Annotated[
    str | None, typer.Option("--transformers", metavar="V,V", help="Versions of transformers; without it, none.")
]
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="PACKAGE", help="What else the recipe needs, e.g. 'timm>=1'. Repeatable."),
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", metavar="FOLDER", help="Where environments and results are kept; else FAIRWAY_CACHE."),
]
LimitOption = Annotated[
    float, typer.Option("--limit", metavar="SECONDS", help="Time limit of the whole run in one environment.")
]


def matrix(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="path/to/recipe.py[:name].")],
    torch: TorchOption = None,
    transformers: TransformersOption = None,
    onnxscript: Annotated[
        str | None, typer.Option("--onnxscript", metavar="V,V", help="Versions of onnxscript; else one that fits.")
    ] = None,
    onnxruntime: Annotated[
        str | None, typer.Option("--onnxruntime", metavar="V,V", help="Versions of onnxruntime; else one that fits.")
    ] = None,
    further: WithOption = None,
    level: options.LevelOption = "standard",
    timeout: options.TimeoutOption = 600.0,
    limit: LimitOption = 1800.0,
    cache: CacheOption = None,
    again: Annotated[bool, typer.Option("--again", help="Run also what is known already.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON on standard output.")] = False,
) -> int:
    """Run a recipe with other versions, each in an environment of its own made by uv, and show them side by side.

    Exit code 0 where every row is verified. An environment that cannot be made is a row with its reason.
    """
    from fairway.debug.versions.environments import Uv, cache_folder, combine
    from fairway.debug.versions.inside import RunSettings
    from fairway.debug.versions.matrix import fill, locate
    from fairway.debug.versions.version_table import table

    locate(recipe)
    lists = {
        "torch": versions("torch", torch) or [installed_torch()],
        "transformers": versions("transformers", transformers),
        "onnxscript": versions("onnxscript", onnxscript),
        "onnxruntime": versions("onnxruntime", onnxruntime),
    }
    kept = cache_folder(cache)
    how = RunSettings(level, timeout, limit)
    progress = Progress(forks=False)
    try:
        rows = fill(recipe, combine(lists, further or ()), Uv(kept), how, kept / "results", again, progress)
    finally:
        progress.close()
    print(json_module.dumps([asdict(row) for row in rows], indent=1) if json else table(rows))
    return 0 if all(row.verified for row in rows) else 1


def versions(package: str, text: str | None) -> list[str]:
    """The versions of a list such as 2.9.1,2.13.0."""
    from packaging.version import InvalidVersion, Version

    found = [part.strip() for part in (text or "").split(",") if part.strip()]
    for one in found:
        try:
            Version(one)
        except InvalidVersion as error:
            todo = (f"Write --{package} 1.2.3 or --{package} 1.2.3,1.3.0.",)
            raise complain("FW006", f"--{package} {one!r:.80} is no version", todo=todo) from error
    return found


def installed_torch() -> str:
    """The version here without its build: +cpu names no version that another index has."""
    from importlib import metadata

    return metadata.version("torch").partition("+")[0]
