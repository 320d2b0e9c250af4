"""fairway watch [add RECIPE | list]"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli import options
from fairway.cli.matrix import (
    CacheOption,
    LimitOption,
    TorchOption,
    TransformersOption,
    WithOption,
    installed_torch,
    versions,
)
from fairway.cli.show import Progress
from fairway.diagnostics.errors import complain

FileOption = Annotated[Path, typer.Option("--file", metavar="F", help="The list, a file of the project.")]
LIST = Path("fairway-watch.json")

app = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)


@app.callback()
def watch(
    context: typer.Context,
    file: FileOption = LIST,
    torch: TorchOption = None,
    transformers: TransformersOption = None,
    further: WithOption = None,
    level: options.LevelOption = "quick",
    timeout: options.TimeoutOption = 600.0,
    limit: LimitOption = 1800.0,
    cache: CacheOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON on standard output.")] = False,
) -> int:
    """Test again what is blocked upstream, and say what has become possible.

    With the versions installed, or with those named, in environments as `fairway matrix` makes them. The list keeps
    what came out. Exit code 1 where something that was possible is broken again. `fairway watch add` puts a recipe on
    the list, `fairway watch list` only shows it.
    """
    if context.invoked_subcommand is not None:
        return 0
    from fairway.debug.versions.environments import EnvironmentSpec, Uv, cache_folder, combine, this_environment
    from fairway.debug.versions.inside import RunSettings
    from fairway.debug.versions.matrix import Maker
    from fairway.debug.versions.watch_list import news, read, retest, watch_table, write

    entries = read(file)
    asked = {"torch": versions("torch", torch), "transformers": versions("transformers", transformers)}
    every: list[EnvironmentSpec] = [EnvironmentSpec(())]
    maker: Maker = this_environment
    if any(asked.values()) or further:
        asked["torch"] = asked["torch"] or [installed_torch()]
        every, maker = combine(asked, further or ()), Uv(cache_folder(cache))
    progress = Progress(forks=False)
    try:
        entries = retest(file, entries, every, maker, RunSettings(level, timeout, limit), progress)
    finally:
        progress.close()
    write(file, entries)
    if json:
        print(json_module.dumps([asdict(entry) for entry in entries], indent=1))
    else:
        print("\n".join((watch_table(entries), "", *news(entries))))
    return 1 if any(entry.state == "broken again" for entry in entries) else 0


@app.command("list")
def show_list(
    file: FileOption = LIST,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON on standard output.")] = False,
) -> int:
    """Show the list as it was left; nothing is tested."""
    from fairway.debug.versions.watch_list import read, watch_table

    entries = read(file)
    print(json_module.dumps([asdict(entry) for entry in entries], indent=1) if json else watch_table(entries))
    return 0


@app.command("add")
def add_to_list(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="path/to/recipe.py[:name].")],
    blocked_by: Annotated[
        str, typer.Option("--blocked-by", metavar="ISSUE", help="owner/repo#number, or the id of a known upstream bug.")
    ],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="A few words for the table.")] = "",
    file: FileOption = LIST,
) -> int:
    """Put a recipe on the list of what is blocked upstream."""
    from fairway.debug.versions.watch_list import LINK, add

    if not LINK.fullmatch(blocked_by):
        link, title = _known(blocked_by)
        blocked_by, why = link, why or title
    entries = add(file, recipe, blocked_by, why)
    print(f"{file}: {len(entries)} blocked")
    return 0


def _known(name: str) -> tuple[str, str]:
    """Where a known upstream bug is reported, and what it is."""
    from fairway.diagnostics.knowledge.entry import entries

    for entry in entries():
        if entry.id == name:
            return entry.link or f"{entry.id} (unreported)", entry.title
    raise complain(
        "FW006",
        f"--blocked-by {name!r:.80} is neither owner/repo#number nor the id of a known upstream bug",
        todo=("Write pytorch/pytorch#163713, say.",),
    )
