"""fairway export-generation RECIPE -o FOLDER"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairway.cli import options
from fairway.cli.show import ProgressLine, freeze_imports, result_status, show_loading, show_result
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain


def export_generation(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="A transformers folder, or path/to/recipe.py[:name].", callback=options.check_recipe
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write.")],
    dims: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="DIM", help="Bounds of batch, past, seq, source: past=0..512. Repeatable."),
    ] = None,
    checkpoint: options.CheckpointOption = None,
    checkpoint_key: options.CheckpointKeyOption = None,
    trust: options.TrustOption = False,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Tokens to generate and compare.")] = 32,
    opset: options.OpsetOption = None,
    level: options.LevelOption = "standard",
    route: options.RouteOption = None,
    remedies: options.RemediesOption = True,
    timeout: options.TimeoutOption = "10m",
    memory: options.MemoryOption = None,
    overwrite: options.OverwriteOption = False,
    json: options.JsonOption = False,
) -> int:
    """Export a text generator with its cache, and test it.

    The files are verified only if they generate the tokens that PyTorch generates.
    """
    overrides = options.parse_overrides(None, dims, checkpoint, trust, checkpoint_key)
    seconds = options.parse_duration("--timeout", timeout)
    memory_bytes = options.parse_memory(memory)
    if overrides.multiples:
        dim = next(iter(overrides.multiples))
        raise complain(Code.UNKNOWN_OPTION, f"--dim: a cache grows one by one, so {dim} cannot have a multiple")

    from fairway.convert.generation.folder_delivery import check_folder

    check_folder(output, overwrite)

    with show_loading():
        from fairway.convert.export import check_level, make_settings
        from fairway.convert.generation.export_generator import GenerationOptions, generate_folder
        from fairway.model.model_folder import list_companions, read_model_folder
        from fairway.model.recipe import load_model
        from fairway.workers.attempt import Limits

        check_level(level)
        settings = make_settings(level, tuple(route or ()), opset, remedies, Limits(seconds, memory_bytes))
        freeze_imports()
        folder = Path(recipe)
        if folder.is_dir():
            model: Any = read_model_folder(folder, recipe, cache=True).build()
            bounds, companions = dict(overrides.bounds), tuple(list_companions(folder))
        else:
            built = load_model(recipe, overrides)
            model, bounds, companions = built.model, {**built.recipe.bounds, **overrides.bounds}, ()
    generation = GenerationOptions(bounds, None, steps, overwrite, companions)
    progress = ProgressLine()
    try:
        result = generate_folder(model, output, settings, generation, progress)
    finally:
        progress.close()
    show_result(result, json)
    return result_status(result)
