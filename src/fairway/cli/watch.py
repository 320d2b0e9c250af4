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
    get_installed_torch,
    parse_versions,
)
from fairway.cli.show import ProgressLine
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

FileOption = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="The watch list, a JSON file of your project.")
]
WATCH_FILE = Path("fairway-watch.json")

app = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)


@app.callback()
def watch(
    context: typer.Context,
    file: FileOption = WATCH_FILE,
    torch: TorchOption = None,
    transformers: TransformersOption = None,
    further: WithOption = None,
    level: options.LevelOption = "quick",
    timeout: options.TimeoutOption = "10m",
    limit: LimitOption = "30m",
    cache: CacheOption = None,
    json: options.JsonOption = False,
) -> int:
    """Retest recipes that are blocked by upstream bugs.

    They run with the installed versions, or with those named, in environments like those of `fairway matrix`. The
    results are stored in the list. The exit code is 1 if something that had become possible is broken again.
    `fairway watch add` adds a recipe to the list, and `fairway watch list` only shows it.
    """
    if context.invoked_subcommand is not None:
        return 0
    from fairway.debug.versions.environments import (
        EnvironmentSpec,
        Uv,
        choose_cache_folder,
        combine_versions,
        use_this_python,
    )
    from fairway.debug.versions.inside import RunSettings
    from fairway.debug.versions.matrix import EnvironmentMaker, MatrixRun
    from fairway.debug.versions.watch_list import (
        list_news,
        read_watch_list,
        render_watch_table,
        retest,
        write_watch_list,
    )

    entries = read_watch_list(file)
    requested = {"torch": parse_versions("torch", torch), "transformers": parse_versions("transformers", transformers)}
    every: list[EnvironmentSpec] = [EnvironmentSpec(())]
    maker: EnvironmentMaker = use_this_python
    if any(requested.values()) or further:
        requested["torch"] = requested["torch"] or [get_installed_torch()]
        every, maker = combine_versions(requested, further or ()), Uv(choose_cache_folder(cache))
    settings = RunSettings(
        level, options.parse_duration("--timeout", timeout), options.parse_duration("--limit", limit)
    )
    progress = ProgressLine(forks=False)
    try:
        entries = retest(file, entries, every, MatrixRun(maker, settings, rerun=True), progress)
    finally:
        progress.close()
    write_watch_list(file, entries)
    if json:
        print(json_module.dumps([asdict(entry) for entry in entries], indent=1))
    else:
        print("\n".join((render_watch_table(entries), "", *list_news(entries))))
    return 1 if any(entry.state == "broken again" for entry in entries) else 0


@app.command("list")
def show_list(
    file: FileOption = WATCH_FILE,
    json: options.JsonOption = False,
) -> int:
    """Show the watch list without testing anything."""
    from fairway.debug.versions.watch_list import read_watch_list, render_watch_table

    entries = read_watch_list(file)
    print(json_module.dumps([asdict(entry) for entry in entries], indent=1) if json else render_watch_table(entries))
    return 0


@app.command("add")
def add_to_list(
    recipe: options.RecipeArgument,
    blocked_by: Annotated[
        str, typer.Option("--blocked-by", metavar="ISSUE", help="owner/repo#number, or the id of a known upstream bug.")
    ],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="A few words for the table.")] = "",
    file: FileOption = WATCH_FILE,
) -> int:
    """Add a recipe to the watch list."""
    from fairway.debug.versions.watch_list import UPSTREAM_LINK, add_blocked_recipe

    if not UPSTREAM_LINK.fullmatch(blocked_by):
        link, title = _find_known_bug(blocked_by)
        blocked_by, why = link, why or title
    entries = add_blocked_recipe(file, recipe, blocked_by, why)
    print(f"{file}: {len(entries)} blocked")
    return 0


def _find_known_bug(name: str) -> tuple[str, str]:
    """Return the upstream thread of a known bug and its title."""
    from fairway.diagnostics.knowledge.entry import load_entries

    for entry in load_entries():
        if entry.id == name:
            return entry.link or f"{entry.id} (unreported)", entry.title
    raise complain(
        Code.UNKNOWN_OPTION,
        f"--blocked-by: expected owner/repo#number or the id of a known upstream bug, got {name!r:.80}",
        todo=("Name the upstream issue, e.g. pytorch/pytorch#163713.",),
    )
