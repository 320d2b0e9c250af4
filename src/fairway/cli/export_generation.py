"""fairway export-generation RECIPE -o FOLDER"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.show import Progress, loading, result_status, settled, show_result


def export_generation(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="path/to/recipe.py[:name]; the model is one of transformers.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write.")],
    dims: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="DIM", help="Bounds of batch, past, seq, source: past=0..512. Repeatable."),
    ] = None,
    checkpoint: options.CheckpointOption = None,
    trust: options.TrustOption = False,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Tokens to generate and compare.")] = 32,
    opset: Annotated[int | None, typer.Option("--opset", metavar="N", help="Exactly this opset, or an error.")] = None,
    level: options.LevelOption = "standard",
    route: options.RouteOption = None,
    remedies: Annotated[bool, typer.Option("--remedies/--no-remedies", help="Repair known defects on the way.")] = True,
    timeout: options.TimeoutOption = 600.0,
    memory: options.MemoryOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files that are there.")] = False,
    json: options.JsonOption = False,
) -> int:
    """Export a generator with its cache, and accept the files only if they generate what PyTorch generates."""
    said = options.overrides(None, dims, checkpoint, trust)
    limit = options.parse_memory(memory)
    if said.multiples:
        from fairway.diagnostics.errors import complain

        raise complain("FW006", f"a multiple for {', '.join(said.multiples)}; a cache grows one by one")

    from fairway.convert.generation.folder_delivery import check_folder

    check_folder(output, overwrite)

    with loading():
        from fairway.convert.export import make_settings
        from fairway.convert.generation.export_generator import generate_folder
        from fairway.model.recipe import load_model

        settings = make_settings(level, tuple(route or ()), opset, remedies, timeout, limit, judging=True)
        settled()
        model, found, _ = load_model(recipe, said)
    bounds = {**found.bounds, **said.bounds}
    progress = Progress()
    try:
        result = generate_folder(model, output, settings, bounds, None, steps, overwrite, progress)
    finally:
        progress.close()
    show_result(result, json)
    return result_status(result)
