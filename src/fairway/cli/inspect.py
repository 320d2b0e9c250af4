"""fairway inspect model.onnx"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairway.cli.options import JsonOption
from fairway.diagnostics.render import printable

if TYPE_CHECKING:
    from fairway.record.reader import Proven


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="Any ONNX file.")],
    json: JsonOption = False,
) -> int:
    """Show a file's inputs, outputs, opset, sizes and record, without loading its weights."""
    from fairway.model.cpu import made_elsewhere, this_cpu
    from fairway.model.onnx_file import open_header
    from fairway.record.reader import compare_with_record

    header = open_header(model)
    inside = _inside(header.metadata)
    stored, finding = compare_with_record(model)
    elsewhere = None if stored is None else made_elsewhere(stored.whole, this_cpu())
    unchanged = None if stored is None and finding is None else finding is None
    if json:
        data = {
            **asdict(header),
            "path": str(model),
            "record": None if inside is None else asdict(inside),
            "record_beside": None if stored is None else asdict(stored.proven),
            "record_matches_file": unchanged,
            "findings": [one.as_dict() for one in (finding, elsewhere) if one is not None],
        }
        print(json_module.dumps(data, indent=1, default=str))
        return 0
    print(printable(f"{model}  opset {header.opset}, {header.producer or 'producer unknown'}"))
    for label, values in (("inputs", header.inputs), ("outputs", header.outputs)):
        for number, value in enumerate(values):
            print(f"  {label if number == 0 else '':<10}{printable(str(value))}")
    megabytes = f"{header.weight_bytes / 1e6:.2f} MB"
    print(f"  {'size':<10}{header.nodes} nodes, {header.weights} weights, {megabytes} of weights")
    for name in header.external:
        print(f"  {'data':<10}{printable(name)}")
    for number, line in enumerate(_about(inside)):
        print(f"  {'record' if number == 0 else '':<10}{line}")
    if stored is not None and stored.proven != inside:
        print(f"  {'beside':<10}{stored.proven}")
    for one in (finding, elsewhere):
        if one is not None:
            print(f"  {'':<10}{one.code}: {printable(one.seen)}")
    if stored is not None:
        print(f"  {'':<10}" + ("unchanged since" if unchanged else "CHANGED since the record beside it was written"))
    return 0


def _inside(metadata: dict[str, str]) -> Proven | None:
    """The short record, or nothing: files come from anywhere, and anybody may write into their metadata."""
    from fairway.record.files import INSIDE
    from fairway.record.reader import parse_short

    try:
        return parse_short(metadata.get(INSIDE, ""))
    except ValueError:
        return None


def _about(record: Proven | None) -> Iterator[str]:
    if record is None:
        yield "none: this file was not made by Fairway, or its metadata was stripped or changed"
        return
    yield str(record)
    yield f"route {record.route}, remedies {', '.join(record.remedies) or 'none'}"
    yield ", ".join(f"{name} {version}" for name, version in record.versions.items())
