"""fairway inspect model.onnx"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fairway.cli.options import JsonOption


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="Any ONNX file.")],
    json: JsonOption = False,
) -> int:
    """Show a file's inputs, outputs, opset, sizes and record, without loading its weights."""
    from fairway.record import INSIDE, hash_file, record_path
    from fairway.subject.onnx_file import open_header

    header = open_header(model)
    beside = record_path(model)
    record = _read(header.metadata.get(INSIDE, ""))
    unchanged = None
    if beside.is_file():
        written = _read(beside.read_text(errors="replace")).get("file")
        unchanged = isinstance(written, dict) and written.get("sha256") == hash_file(model)
    if json:
        data = {**asdict(header), "path": str(model), "record": record or None, "record_matches_file": unchanged}
        print(json_module.dumps(data, indent=1, default=str))
        return 0
    print(f"{model}  opset {header.opset}, {header.producer or 'producer unknown'}")
    for label, values in (("inputs", header.inputs), ("outputs", header.outputs)):
        for number, value in enumerate(values):
            print(f"  {label if number == 0 else '':<10}{value}")
    megabytes = f"{header.weight_bytes / 1e6:.2f} MB"
    print(f"  {'size':<10}{header.nodes} nodes, {header.weights} weights, {megabytes} of weights")
    for name in header.external:
        print(f"  {'data':<10}{name}")
    for number, line in enumerate(_about(record)):
        print(f"  {'record' if number == 0 else '':<10}{line}")
    if record and unchanged is not None:
        print(f"  {'':<10}" + ("unchanged since" if unchanged else "CHANGED since the record beside it was written"))
    return 0


def _read(text: str) -> dict[str, Any]:
    """The record, or nothing: files come from anywhere, and anybody may write into their metadata."""
    try:
        found = json_module.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _about(record: dict[str, Any]) -> list[str]:
    try:
        dims = ", ".join(f"{name} {d['low']}..{d['high']}" for name, d in record["domain"].items()) or "one fixed shape"
        return [
            f"{record['verdict']} for {dims}; {record['points']} samples, level {record['level']}",
            f"route {record['route']}, remedies {', '.join(record['remedies']) or 'none'}",
            ", ".join(f"{k} {v}" for k, v in record["versions"].items()),
        ]
    except (KeyError, TypeError, AttributeError):
        return ["none: this file was not made by Fairway, or its metadata was stripped or changed"]
