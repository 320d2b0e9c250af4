"""fairway inspect model.onnx"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fairway.cli.options import JsonOption, model_argument
from fairway.diagnostics.render import make_printable

if TYPE_CHECKING:
    from fairway.record.schema import ShortRecord


def inspect(
    model: Annotated[Path, model_argument("Any ONNX file.")],
    json: JsonOption = False,
) -> int:
    """Show a file's inputs, outputs, opset, size and record.

    The weights are not loaded.
    """
    from fairway.model.onnx_file import open_header
    from fairway.record.reader import compare_with_record, compare_with_this_cpu

    header = open_header(model)
    embedded = _read_embedded_record(header.metadata)
    stored, finding = compare_with_record(model)
    elsewhere = None if stored is None else compare_with_this_cpu(stored)
    unchanged = None if stored is None and finding is None else finding is None
    if json:
        data = {
            **asdict(header),
            "path": str(model),
            "record": None if embedded is None else _list_facts(embedded),
            "record_beside": None if stored is None else _list_facts(stored.short),
            "record_matches_file": unchanged,
            "findings": [note.as_dict() for note in (finding, elsewhere) if note is not None],
        }
        print(json_module.dumps(data, indent=1, default=str))
        return 0
    print(make_printable(f"{model}  opset {header.opset}, {header.producer or 'producer unknown'}"))
    for label, values in (("inputs", header.inputs), ("outputs", header.outputs)):
        for number, value in enumerate(values):
            print(f"  {label if number == 0 else '':<10}{make_printable(str(value))}")
    megabytes = f"{header.weight_bytes / 1e6:.2f} MB"
    print(f"  {'size':<10}{header.nodes} nodes, {header.weights} weights, {megabytes} of weights")
    for name in header.external:
        print(f"  {'data':<10}{make_printable(name)}")
    for number, line in enumerate(_format_record(embedded)):
        print(f"  {'record' if number == 0 else '':<10}{line}")
    if stored is not None and stored.short != embedded:
        print(f"  {'beside':<10}{stored.short}")
    for note in (finding, elsewhere):
        if note is not None:
            print(f"  {'':<10}{note.code}: {make_printable(note.seen)}")
    if stored is not None:
        print(f"  {'':<10}" + ("unchanged since" if unchanged else "CHANGED since the record beside it was written"))
    return 0


def _read_embedded_record(metadata: dict[str, str]) -> ShortRecord | None:
    """Return the short record, or None: files come from anywhere, and their metadata may contain anything."""
    from fairway.record.files import METADATA_KEY
    from fairway.record.reader import parse_short

    try:
        return parse_short(metadata.get(METADATA_KEY, ""))
    except ValueError:
        return None


def _list_facts(short: ShortRecord) -> dict[str, object]:
    facts = short.as_dict()
    del facts["format"]
    return {**facts, "quantized": None if short.quantized is None else short.quantized.said}


def _format_record(record: ShortRecord | None) -> Iterator[str]:
    if record is None:
        yield "none: this file was not made by Fairway, or its metadata was stripped or changed"
        return
    yield str(record)
    yield f"route {record.route}, remedies {', '.join(record.remedies) or 'none'}"
    yield ", ".join(f"{name} {version}" for name, version in record.versions.items())
