"""The parts of a record, and the types of their fields. `schema.py` puts them together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    JsonValue,
    StringConstraints,
)

MAX_NAME_CHARACTERS = 1000

T = TypeVar("T")


def _replace_surrogates(value: object) -> object:
    """Paths of files may hold bytes that are not UTF-8, and JSON cannot."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected printable characters")
    return text


def _check_file_name(name: str) -> str:
    if not name or "/" in name or name in (".", ".."):
        raise ValueError("expected a file name without a folder")
    return name


def _check_link_name(name: str) -> str:
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts):
        raise ValueError("expected a path below the model's folder")
    return name


Text = Annotated[str, BeforeValidator(_replace_surrogates)]
Name = Annotated[str, StringConstraints(max_length=MAX_NAME_CHARACTERS), AfterValidator(_check_printable)]
FileName = Annotated[Name, AfterValidator(_check_file_name)]
LinkName = Annotated[Name, AfterValidator(_check_link_name)]
Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, lt=2**63)]
Many = Annotated[tuple[T, ...], FailFast()]
Sizes = Mapping[str, int]
RecordVerdict = Literal["verified", "unproven", "wrong", "failed", "quantized"]


class RecordPart(BaseModel):
    """A frozen part of a record."""

    model_config = ConfigDict(
        frozen=True, extra="allow", validate_by_name=True, validate_by_alias=True, ser_json_inf_nan="null"
    )

    def as_dict(self) -> dict[str, Any]:
        """Return the part as plain data for JSON, with the fields that were set."""
        data: dict[str, Any] = json.loads(self.model_dump_json(by_alias=True, exclude_unset=True))
        return data


class DimRecord(RecordPart):
    """The bounds of one dim."""

    low: Size
    high: Size
    multiple: Size
    declared: bool = True
    """False if the bounds are Fairway's own."""


class SubjectRecord(RecordPart):
    """The model, its inputs, and the domain that was tested."""

    name: Text = ""
    class_name: Text = Field(default="", validation_alias="class", serialization_alias="class")
    sha256: Hash
    """A hash over the class, and the names, shapes and values of all parameters and buffers."""
    inputs: Many[Text] = ()
    """The spec, one line for each input."""
    outputs: Many[Text] = ()
    domain: Mapping[Name, DimRecord]
    example: Sizes = {}
    patches: Many[Text] = ()
    """Functions that you replaced."""
    translations: Many[Text] = ()
    """Operators that you translated."""


class SettingsRecord(RecordPart):
    """The settings of the export, or of quantizing."""

    level: Text | None = None
    opset: int | None = None
    """The opset that was requested, if any."""
    remedies: bool = True
    routes: Many[Text] = ()
    """The routes that were requested; empty for the whole ladder."""
    scheme: Text | None = None
    method: Text | None = None
    samples: int | None = None


class RemedyRecord(RecordPart):
    """A remedy that changed something."""

    name: Name
    note: Text = ""
    """The places at which it was applied."""
    cures: Text = ""
    """The finding that it repairs."""
    title: Text = ""
    safety: Text = ""
    """The reason why it is safe."""


class RewriteRecord(RecordPart):
    """Functions of the model that were rewritten, with their source before and after."""

    functions: Text = ""
    before: Text = ""
    after: Text = ""


class WeightCount(RecordPart):
    """A number of tensors and their bytes."""

    tensors: int = 0
    bytes: int = 0
    names: Many[Text] = ()
    """The first twenty; only of tensors that are not in a checkpoint."""


class WeightsRecord(RecordPart):
    """The storage of the weights."""

    mode: Text | None = None
    """`link`, `copy`, or null if they are inside the file."""
    linked: WeightCount = WeightCount()
    beside: WeightCount = WeightCount()
    computed_in: Text = ""


class BlockRecord(RecordPart):
    """A row of equal blocks, of which the first ones were captured."""

    container: Text = ""
    first: int = 0
    count: int = 0
    kept: int = 0


class PieceRecord(RecordPart):
    """A capture in a joined file, and the region of the domain that it serves."""

    region: Text = ""
    captured_at: Sizes = {}
    guards: Many[Text] = ()
    points: int = 0
    counted: Text = ""


class WhereRecord(RecordPart):
    """The place of a finding, as far as it is known."""

    file: Text | None = None
    line: int | None = None
    function: Text | None = None
    source: Text | None = None
    module: Text | None = None
    node: Text | None = None


class FindingRecord(RecordPart):
    """A diagnosis."""

    title: Text = ""
    severity: Text = ""
    kind: Text = ""
    code: Text
    seen: Text = ""
    where: WhereRecord | None = None
    why: Text = ""
    todo: Many[Text] = ()
    upstream: Many[Text] = ()
    artifacts: Many[Text] = ()
    """Files that were kept for inspection."""
    data: Mapping[str, JsonValue] = {}


class RungFindingRecord(RecordPart):
    """A finding of one rung, in short."""

    code: Text = ""
    seen: Text = ""
    where: Text | None = None


class RefusalRecord(RecordPart):
    """A remedy that was not applied, and the reason."""

    remedy: Text = ""
    reason: Text = ""


class RungRecord(RecordPart):
    """A rung of the ladder."""

    route: Text = ""
    verdict: Text = ""
    seconds: float = 0.0
    export_seconds: float = 0.0
    evidence: Text | None = None
    """The cost of the evidence, if it took longer than the export."""
    samples: tuple[int, int] | None = None
    """The samples that were right, and all of them."""
    peak_mb: int = 0
    remedies: Many[Text] = ()
    refused: Many[RefusalRecord] = ()
    findings: Many[RungFindingRecord] = ()


class LinkedFileRecord(RecordPart):
    """A checkpoint that the weights are read from."""

    name: LinkName
    """Its path from the model's folder."""
    blake3: Hash


class DataFileRecord(RecordPart):
    """The file of the weights."""

    name: FileName
    sha256: Hash


class FileRecord(RecordPart):
    """The ONNX file that the record is about, and the files that belong to it."""

    name: FileName
    sha256: Hash
    data: DataFileRecord | None = None
    linked: Many[LinkedFileRecord] = ()


class PublishedRecord(RecordPart):
    """The mark of a file that was published unverified."""

    unverified: Text | None = None
    """The reason why the file is not verified."""
