"""`fairway.locate`: judge a file, and where it is wrong, name the node, the module and the line.

Values that PyTorch computes tell right from wrong, but an exporter takes steps of its own between them. So the model is
exported again, by the exporter that made the file; what is verified and names its values alike settles those, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from fairway.convert.export import Progress, export_subject, verify_subject
from fairway.convert.ladder.climb import Settings
from fairway.convert.result import Result
from fairway.model.onnx_file import check_room, check_signature, open_header
from fairway.model.subject import Subject

AGAIN = {"node_": "export-dynamic", "/": "trace"}
"""Routes by how the exporter that they use begins the names of its nodes."""


def locate_subject(
    subject: Subject,
    path: Path,
    settings: Settings,
    data: str | Path | None = None,
    against: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """As verify, with right files to compare a wrong one with: the one named, else what can be exported here."""
    if against is not None:
        header = open_header(against)
        check_room(header)
        check_signature(header, subject)
        return verify_subject(subject, path, settings, data, progress, lambda: [str(against)])
    with tempfile.TemporaryDirectory(prefix="fairway-") as folder:
        return verify_subject(
            subject,
            path,
            settings,
            data,
            progress,
            lambda: _export_again(subject, settings, Path(folder), _made_by(path), progress),
        )


def _made_by(path: Path) -> list[str]:
    """The routes whose names the file's nodes have; all where none has."""
    names = [node.name for node in onnx.load(path, load_external_data=False).graph.node]
    likely = [route for start, route in AGAIN.items() if any(name.startswith(start) for name in names)]
    return likely or list(AGAIN.values())


def _export_again(
    subject: Subject, settings: Settings, folder: Path, routes: Sequence[str], progress: Progress | None
) -> Sequence[str]:
    """Files that are right, by the plain routes."""
    found = []
    for route in routes:
        if progress is not None:
            progress(("stage", f"exporting again by {route}, to compare"))
        target = folder / f"{route}.onnx"
        plain = replace(settings, level="quick", routes=(route,))
        if export_subject(subject, target, plain, progress=progress).verified:
            found.append(str(target))
    return found
