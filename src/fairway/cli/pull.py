"""fairway pull DEST"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli.publish import DestinationArgument
from fairway.cli.show import Progress
from fairway.diagnostics.render import printable


def pull(
    destination: DestinationArgument,
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="A new folder; else named after DEST.")
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", metavar="V", help="A number, a digest's beginning, or MLflow's alias.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what came as JSON on standard output.")] = False,
) -> int:
    """Bring back what was published, and check that every byte is the one that was verified."""
    from fairway.deploy.publish import pull as pull_bundle
    from fairway.deploy.publish.places import default_folder

    progress = Progress(forks=False)
    try:
        done = pull_bundle(destination, folder or default_folder(destination), version, progress)
    finally:
        progress.close()
    if json:
        print(json_module.dumps(asdict(done), indent=1, default=str))
        return 0
    print(printable(f"pulled  {done.model}  version {done.version}"))
    state = done.verdict if done.unverified is None else f"UNVERIFIED: {done.unverified}"
    print(printable(f"  checked   {len(done.files)} files: {', '.join(done.files)}"))
    print(printable(f"  record    {state}"))
    return 0
