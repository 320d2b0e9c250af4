"""Write records: as JSON beside the file, and in short form inside it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from fairway.diagnostics import Finding
from fairway.record.schema import GenerationRecord, Record
from fairway.record.schema_parts import FindingRecord, WhereRecord


def format_record(record: Record | GenerationRecord) -> str:
    """Return the JSON of the file beside the model."""
    return json.dumps(record.as_dict(), indent=1) + "\n"


def format_short(record: Record) -> str:
    """Return the JSON that goes into the metadata of the ONNX file."""
    return json.dumps(record.short.as_dict(), sort_keys=True)


def write_record(path: Path, record: Record | GenerationRecord) -> None:
    path.write_text(format_record(record))


def describe_finding(finding: Finding) -> FindingRecord:
    where = finding.where
    place = None
    if where is not None:
        place = WhereRecord(
            file=where.file,
            line=where.line,
            function=where.function,
            source=where.source,
            module=where.module,
            node=where.node,
        )
    return FindingRecord(
        title=finding.title,
        severity=finding.severity,
        kind=finding.entry.kind,
        code=finding.code,
        seen=finding.seen,
        where=place,
        why=finding.why,
        todo=tuple(finding.todo),
        upstream=tuple(finding.upstream),
        artifacts=tuple(finding.artifacts),
        data=json.loads(to_plain(finding.data)),
    )


def to_plain(data: Mapping[str, object]) -> str:
    """Return data as JSON. JSON has no NaN and no infinity, and a value of another type is written as text."""
    return json.dumps(_replace_odd_values(dict(data)), default=str)


def _replace_odd_values(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {str(key): _replace_odd_values(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_replace_odd_values(item) for item in value]
    return value
