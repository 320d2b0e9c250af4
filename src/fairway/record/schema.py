"""The record: everything known about a file, as one typed and versioned schema.

`fairway.record.writer` turns a record into JSON, and `fairway.record.reader` reads it back. A field keeps its JSON key
and its meaning within one format. `RECORD_FORMAT` is raised if a field is removed or changes its meaning. Fields that
this version does not know are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from fairway.record.schema_evidence import EvidenceRecord
from fairway.record.schema_parts import (
    BlockRecord,
    DimRecord,
    FileRecord,
    FindingRecord,
    Hash,
    Many,
    Name,
    PieceRecord,
    PublishedRecord,
    RecordPart,
    RecordVerdict,
    RemedyRecord,
    RewriteRecord,
    RungRecord,
    SettingsRecord,
    SubjectRecord,
    Text,
    WeightsRecord,
)
from fairway.record.schema_tuning import OptimizedRecord, QuantizedRecord

RECORD_FORMAT: Literal[2] = 2
UNKNOWN_SUBJECT = "0" * 64
"""The subject's hash if the model of a file is not known."""


class ShortRecord(RecordPart):
    """The short form of a record, in the metadata of the ONNX file. It holds no paths of the machine."""

    format: Literal[2]
    verdict: RecordVerdict
    route: Name | None = None
    remedies: Many[Name]
    domain: Mapping[Name, DimRecord]
    subject_sha256: Hash
    level: Name | None = None
    points: Annotated[int, Field(ge=0)]
    """The number of samples."""
    versions: Mapping[Name, Name]
    quantized: QuantizedRecord | None = None
    """Of a quantized file: `said`, `from`, `scheme`, `cpu` and `arithmetic`."""

    @model_validator(mode="after")
    def _check_quantized(self) -> Self:
        _require_reason(self.verdict, self.quantized)
        return self

    def __str__(self) -> str:
        if self.verdict == "quantized" and self.quantized is not None:
            return f"{self.verdict}: {self.quantized.said}; not held to PyTorch's numbers"
        dims = ", ".join(f"{name} {dim.low}..{dim.high}" for name, dim in self.domain.items()) or "one fixed shape"
        return f"{self.verdict} for {dims}; {self.points} samples, level {self.level or 'none'}"


class Record(RecordPart):
    """A JSON file, `NAME.fairway.json`, beside the ONNX file `NAME.onnx`."""

    format: Literal[2]
    subject: SubjectRecord
    versions: Mapping[Name, Name]
    machine: Text = ""
    settings: SettingsRecord = SettingsRecord()
    verdict: RecordVerdict
    route: Name | None = None
    """The route of the best rung."""
    remedies: Many[RemedyRecord]
    rewritten: Many[RewriteRecord] = ()
    weights: WeightsRecord | None = None
    blocks: Many[BlockRecord] = ()
    pieces: Many[PieceRecord] = ()
    """The captures that were joined, if there are several."""
    evidence: EvidenceRecord | None = None
    findings: Many[FindingRecord] = ()
    ladder: Many[RungRecord] = ()
    """The rungs in the order in which they were tried."""
    opset: int | None = None
    quantized: QuantizedRecord | None = None
    optimized: OptimizedRecord | None = None
    file: FileRecord | None = None
    """Null if no file was written."""
    published: PublishedRecord | None = None
    path: Text | None = None
    """The path that was written. Only in what `--json` prints."""

    @model_validator(mode="after")
    def _check_quantized(self) -> Self:
        _require_reason(self.verdict, self.quantized)
        return self

    @property
    def level(self) -> str | None:
        return None if self.evidence is None else self.evidence.level

    @property
    def is_verified(self) -> bool:
        return self.verdict == "verified"

    @property
    def unverified_reason(self) -> str | None:
        """The reason that an earlier publisher wrote into the record of an unverified file."""
        return None if self.published is None else self.published.unverified

    @property
    def hashes(self) -> dict[str, str]:
        """Return the sha256 of the model file, which comes first, and of its data file, by name."""
        if self.file is None:
            return {}
        data = {} if self.file.data is None else {self.file.data.name: self.file.data.sha256}
        return {self.file.name: self.file.sha256, **data}

    @property
    def linked_hashes(self) -> dict[str, str]:
        """Return the BLAKE3 of the checkpoints that hold the weights, by their paths from the model's folder."""
        return {} if self.file is None else {link.name: link.blake3 for link in self.file.linked}

    @property
    def short(self) -> ShortRecord:
        """The short form."""
        fields: dict[str, object] = {
            "format": self.format,
            "verdict": self.verdict,
            "route": self.route,
            "remedies": tuple(remedy.name for remedy in self.remedies),
            "domain": self.subject.domain,
            "subject_sha256": self.subject.sha256,
            "level": self.level,
            "points": 0 if self.evidence is None else len(self.evidence.tested),
            "versions": self.versions,
        }
        made = self.quantized
        if made is not None:
            fields["quantized"] = QuantizedRecord(
                said=made.said, source=made.source, scheme=made.scheme, cpu=made.cpu, arithmetic=made.arithmetic
            )
        return ShortRecord.model_validate(fields)


class RefusalReport(RecordPart):
    """The JSON that `--json` prints if a command ends before there is a record."""

    verdict: Literal["failed"]
    findings: Many[FindingRecord]


class GenerationRecord(RecordPart):
    """The file `generation.fairway.json` of a generator's folder."""

    format: Literal[2]
    verdict: RecordVerdict
    model: Text = ""
    """The class of the model."""
    versions: Mapping[Name, Name]
    graphs: Mapping[str, Record]
    """The record of each graph, by file name."""
    steps: Many[Mapping[str, JsonValue]] = ()
    """Each prompt, compared with PyTorch token by token."""
    findings: Many[FindingRecord] = ()
    files: Mapping[str, Hash] = {}
    """The sha256 of every file of the folder."""

    @property
    def overview(self) -> Record:
        """A record of the whole folder, for lists and pages."""
        return Record(
            format=RECORD_FORMAT,
            subject=SubjectRecord(name=self.model, class_name=self.model, sha256=UNKNOWN_SUBJECT, domain={}),
            versions=self.versions,
            verdict=self.verdict,
            remedies=(),
            findings=self.findings,
        )


def _require_reason(verdict: RecordVerdict, quantized: QuantizedRecord | None) -> None:
    """The verdict `quantized` needs the line that says what it means."""
    if verdict == "quantized" and (quantized is None or quantized.said is None):
        raise ValueError("the verdict quantized needs quantized.said")
