"""`fairway.locate`: judge a file and, if it is wrong, name the node, the module and the line.

Values that PyTorch computes show what is right, but an exporter also adds its own steps between them. So the model is
exported again by the exporter that made the file, and nodes of the same name in a verified file settle those too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairway.convert.export import export_subject, verify_subject
from fairway.convert.result import Result
from fairway.convert.types import Settings
from fairway.model.onnx_file import load_structure, open_model
from fairway.model.subject import Subject
from fairway.record.progress import EventSink, StageStarted

ROUTE_BY_NAME_PREFIX = {"node_": "export-dynamic", "/": "trace"}
"""Routes, by the prefix of the node names that their exporter makes."""


def locate_subject(
    subject: Subject,
    path: Path,
    settings: Settings,
    data: str | Path | None = None,
    against: Path | None = None,
    progress: EventSink | None = None,
) -> Result:
    """Verify a file and compare a wrong one with right ones: `against`, or else files that are exported here."""
    if against is not None:
        open_model(against, subject)
        return verify_subject(subject, path, settings, data, progress, lambda: [str(against)])
    with tempfile.TemporaryDirectory(prefix="fairway-") as folder:
        return verify_subject(
            subject,
            path,
            settings,
            data,
            progress,
            lambda: _export_again(subject, settings, Path(folder), _guess_routes(path), progress),
        )


def _guess_routes(path: Path) -> list[str]:
    """Return the routes whose node names occur in the file, or all routes if none does."""
    names = [node.name for node in load_structure(path).graph.node]
    likely = [route for start, route in ROUTE_BY_NAME_PREFIX.items() if any(name.startswith(start) for name in names)]
    return likely or list(ROUTE_BY_NAME_PREFIX.values())


def _export_again(
    subject: Subject, settings: Settings, folder: Path, routes: Sequence[str], progress: EventSink | None
) -> Sequence[str]:
    """Return verified files made by the plain routes."""
    verified_files = []
    for route in routes:
        if progress is not None:
            progress(StageStarted(f"exporting again by {route}, to compare"))
        target = folder / f"{route}.onnx"
        plain = replace(settings, level="quick", routes=(route,))
        if export_subject(subject, target, plain, progress=progress).verified:
            verified_files.append(str(target))
    return verified_files
