"""fairway matrix RECIPE --torch 2.9.1,2.13.0"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import ProgressLine
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

TorchOption = Annotated[
    str | None, typer.Option("--torch", metavar="V,V", help="Versions of torch. Default: the installed one.")
]
TransformersOption = Annotated[
    str | None, typer.Option("--transformers", metavar="V,V", help="Versions of transformers. Default: not installed.")
]
WithOption = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="PACKAGE", help="Another package that the recipe needs, e.g. 'timm>=1'. Repeatable."
    ),
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", metavar="FOLDER", help="The folder for environments and results. Default: FAIRWAY_CACHE."),
]
LimitOption = Annotated[
    str, typer.Option("--limit", metavar="TIME", help="Time limit of the run in one environment: 90s, 30m, 1h.")
]


def matrix(
    recipe: options.RecipeArgument,
    torch: TorchOption = None,
    transformers: TransformersOption = None,
    onnxscript: Annotated[
        str | None,
        typer.Option("--onnxscript", metavar="V,V", help="Versions of onnxscript. Default: a compatible one."),
    ] = None,
    onnxruntime: Annotated[
        str | None,
        typer.Option("--onnxruntime", metavar="V,V", help="Versions of onnxruntime. Default: a compatible one."),
    ] = None,
    further: WithOption = None,
    level: options.LevelOption = "standard",
    timeout: options.TimeoutOption = "10m",
    limit: LimitOption = "30m",
    cache: CacheOption = None,
    again: Annotated[bool, typer.Option("--again", help="Also run what has a stored result.")] = False,
    json: options.JsonOption = False,
) -> int:
    """Run a recipe with other versions of its packages.

    uv makes an environment for each combination, and the results are shown side by side. The exit code is 0 if every
    row is verified. An environment that cannot be made is a row with its reason.
    """
    from fairway.debug.versions.environments import Uv, choose_cache_folder, combine_versions
    from fairway.debug.versions.inside import RunSettings
    from fairway.debug.versions.matrix import MatrixRun, fill_matrix, locate_recipe
    from fairway.debug.versions.version_table import render_version_table

    locate_recipe(recipe)
    lists = {
        "torch": parse_versions("torch", torch) or [get_installed_torch()],
        "transformers": parse_versions("transformers", transformers),
        "onnxscript": parse_versions("onnxscript", onnxscript),
        "onnxruntime": parse_versions("onnxruntime", onnxruntime),
    }
    kept = choose_cache_folder(cache)
    settings = RunSettings(
        level, options.parse_duration("--timeout", timeout), options.parse_duration("--limit", limit)
    )
    progress = ProgressLine(forks=False)
    try:
        rows = fill_matrix(
            recipe,
            combine_versions(lists, further or ()),
            MatrixRun(Uv(kept), settings, kept / "results", again),
            progress,
        )
    finally:
        progress.close()
    print(json_module.dumps([asdict(row) for row in rows], indent=1) if json else render_version_table(rows))
    return 0 if all(row.is_verified for row in rows) else 1


def parse_versions(package: str, text: str | None) -> list[str]:
    """Return the versions in a list such as 2.9.1,2.13.0."""
    from packaging.version import InvalidVersion, Version

    listed = [part.strip() for part in (text or "").split(",") if part.strip()]
    for version in listed:
        try:
            Version(version)
        except InvalidVersion as error:
            todo = (f"Write --{package} 1.2.3 or --{package} 1.2.3,1.3.0.",)
            raise complain(
                Code.UNKNOWN_OPTION, f"--{package}: expected a version, got {version!r:.80}", todo=todo
            ) from error
    return listed


def get_installed_torch() -> str:
    """Return the installed version without its build: other indexes have no +cpu."""
    from importlib import metadata

    return metadata.version("torch").partition("+")[0]
