"""The parts of the record that say how a file was quantized or optimized."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, JsonValue

from fairway.record.schema_parts import Many, Name, RecordPart, Text


class CpuRecord(RecordPart):
    """The CPU that a quantized file was made for."""

    machine: Text = ""
    name: Text = ""
    flags: Many[Text] = ()
    saturates: bool = False
    """Whether sums of byte products overflow at 16 bits."""


class ArithmeticRecord(RecordPart):
    """The 8-bit types of a quantized file."""

    activations: Text = ""
    weights: Text = ""
    reduce_range: bool = False
    """Whether weights keep one bit free."""
    why: Text = ""


class SourceRecord(RecordPart):
    """The float file that was quantized."""

    name: Text = ""
    sha256: Text = ""


class CalibrationRecord(RecordPart):
    """The samples that a file was quantized with."""

    source: Text = ""
    drawn_from_spec: bool = False
    """Whether samples were generated from the spec, not taken from real data."""
    held_back: int = 0
    """Samples kept for judging."""
    method: Text | None = None
    samples: int | None = None
    tensors: int | None = None


class SpeedRecord(RecordPart):
    """The speed of a file in units of another's, with its 95 % interval."""

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    said: Text = ""


class VariantRecord(RecordPart):
    """A quantized candidate and its scores."""

    scheme: Text = ""
    sha256: Text = ""
    bytes: int = 0
    size_share: float | None = None
    drop: float | None = None
    """The loss of quality by the metric."""
    quality: Mapping[str, float | None] = {}
    speed: SpeedRecord | None = None
    why_slow: Text = ""
    units_quantized: int = 0
    units_kept: Many[Text] = ()
    weights_narrowed: int = 0


class QuantizedRecord(RecordPart):
    """The quantization: from which file, by which scheme, at which loss."""

    source: SourceRecord = Field(default_factory=SourceRecord, validation_alias="from", serialization_alias="from")
    scheme: Text | None = None
    metric: Text = ""
    cpu: CpuRecord | None = None
    arithmetic: ArithmeticRecord | None = None
    calibration: CalibrationRecord | None = None
    per_channel: bool = False
    budget: Mapping[str, JsonValue] = {}
    opset_raised_from: int | None = None
    shipped: VariantRecord | None = None
    tried: Many[VariantRecord] = ()
    said: Name | None = None
    """The loss and the gain in one line."""


class FileSizeRecord(RecordPart):
    """The size of a file with its weights, and the number of its nodes."""

    bytes: int = 0
    nodes: int = 0


class PassRecord(RecordPart):
    """An optimizer pass and whether it was kept."""

    name: Text = Field(default="", validation_alias="pass", serialization_alias="pass")
    kept: bool = False
    reason: Text = ""
    speeds: tuple[Mapping[str, JsonValue], ...] | None = None
    size: FileSizeRecord | None = None


class OptimizedRecord(RecordPart):
    """The optimizer passes that were tried on a file, and the gain of those that were kept."""

    source: Text = Field(default="", validation_alias="from", serialization_alias="from")
    judged_against: Text = ""
    kept: Many[Text] = ()
    passes: Many[PassRecord] = ()
    before: FileSizeRecord | None = None
    after: FileSizeRecord | None = None
    together: tuple[Mapping[str, JsonValue], ...] | None = None
    """Speeds of the result beside the input, one for each point."""
