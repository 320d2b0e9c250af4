"""fairway pull DEST"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli.options import JsonOption
from fairway.cli.publish import DestinationArgument
from fairway.cli.show import ProgressLine
from fairway.diagnostics.render import make_printable


def pull(
    destination: DestinationArgument,
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="A new folder. Default: named after DEST.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="V", help="A version number, the start of a digest, or an MLflow alias."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Download a published file and check every byte.

    The bytes must be those that were verified.
    """
    from fairway.deploy.publish import pull as pull_bundle
    from fairway.deploy.publish.places import choose_default_folder

    progress = ProgressLine(forks=False)
    try:
        done = pull_bundle(destination, folder or choose_default_folder(destination), version, progress)
    finally:
        progress.close()
    if json:
        print(json_module.dumps(asdict(done), indent=1, default=str))
        return 0
    print(make_printable(f"pulled  {done.model}  version {done.version}"))
    state = done.verdict if done.unverified is None else f"UNVERIFIED: {done.unverified}"
    print(make_printable(f"  checked   {len(done.files)} files: {', '.join(done.files)}"))
    print(make_printable(f"  record    {state}"))
    return 0
