"""fairway publish MODEL DEST"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli.options import JsonOption, model_argument
from fairway.cli.show import ProgressLine
from fairway.diagnostics.render import make_printable

if TYPE_CHECKING:
    from fairway.deploy.publish.destination import Published

DestinationArgument = Annotated[
    str, typer.Argument(metavar="DEST", help="s3://BUCKET/PREFIX, mlflow:NAME, triton:FOLDER, ort:FOLDER, or a folder.")
]


def publish(
    model: Annotated[Path, model_argument("A file with its record beside it.")],
    destination: DestinationArgument,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Also publish a file that is not verified; its record will say so.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Publish a verified file with its weights and record.

    Everything is published, or nothing.

    S3 and MLflow need the extra `publish`. Endpoint and credentials come from the environment: AWS_ENDPOINT_URL,
    AWS_ACCESS_KEY_ID and so on; MLFLOW_TRACKING_URI.
    """
    from fairway.deploy.publish import publish as publish_bundle

    progress = ProgressLine(forks=False)
    try:
        done = publish_bundle(model, destination, unverified, progress)
    finally:
        progress.close()
    print(
        json_module.dumps(asdict(done), indent=1) if json else "\n".join(map(make_printable, _format_published(done)))
    )
    return 0


def _format_published(done: Published) -> list[str]:
    sent = f"{len(done.sent)} of {len(done.files)} files, {done.sent_bytes / 1e6:.2f} MB"
    lines = [f"published  {done.where}  version {done.version}"]
    if done.unverified is not None:
        lines.append(f"  UNVERIFIED: {done.unverified}")
    lines.append(f"  files     {', '.join(done.files)}")
    lines.append(f"  sent      {sent if done.sent else 'nothing: everything was there already'}")
    lines += [f"  note      {note}" for note in done.notes]
    return [*lines, f"  digest    {done.digest}"]
