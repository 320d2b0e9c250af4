"""The part of the record that says what was tested, and how it came out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from fairway.record.schema_parts import FindingRecord, Many, Name, RecordPart, Sizes, Text


class SampleRecord(RecordPart):
    """A sample and its outcome."""

    point: Sizes = Field(default_factory=dict)
    seed: int = 0
    flavor: Text = ""
    """The kind of values."""
    right: bool = False
    ratio: float | None = None
    """The error of the file in units of what the yardstick allows; null if there were no numbers to compare."""
    note: Text = ""
    data: int | None = None
    """The number of your own tensors, if they were used."""
    ratios: Many[float | None] = ()
    """The ratio of each output, if there are several."""
    excused: Text = ""
    """The reason why the file may differ here."""

    @property
    def is_legal(self) -> bool:
        """Return whether PyTorch itself accepts the sample."""
        return not self.note.startswith("not legal")


class OutputRecord(RecordPart):
    """One output over all samples."""

    name: Text = ""
    dtype: Text = ""
    ratio: float | None = None
    """The largest ratio of any sample."""
    file_error: float | None = None
    own_error: float | None = None
    """The largest error of PyTorch itself, measured from float64."""


class SecondExportRecord(RecordPart):
    """The comparison with a second export from another example."""

    done: bool = False
    same: bool = False
    harmless: bool = False
    """The files differ, but both agree with PyTorch at the samples of both."""
    differences: Many[Text] = ()
    note: Text = ""


class SizesRecord(RecordPart):
    """The guards of the capture, and the points of the domain at which they hold."""

    guards: Many[Text] = ()
    points: int = 0
    excluded: int = 0
    """Points that break a guard."""
    excluded_run: int = 0
    """Points among them that were tested."""
    complete: bool = False
    """Whether every guard was evaluated at every point."""
    sampled: Text = ""
    """The reason why sizes are sampled; empty if they are covered."""
    pieces: int = 0


class ValuesRecord(RecordPart):
    """The values that one input was drawn from."""

    name: Text = ""
    text: Text = ""
    low: float | None = None
    high: float | None = None


class RowsRecord(RecordPart):
    """The comparison of rows alone with rows in a batch."""

    dim: Text | None = None
    independent: bool = False
    sizes: Many[int] = ()
    """The batch sizes at which rows were compared."""
    compared: Text = ""
    reason: Text = ""


class CanaryOutputRecord(RecordPart):
    """A few numbers of one output."""

    dtype: Text
    shape: Many[int]
    largest: float
    numbers: Many[float | None]


class CanaryRecord(RecordPart):
    """A few numbers that the file returned for inputs that can be generated again."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    point: Sizes = Field(default_factory=dict)
    outputs: Mapping[str, CanaryOutputRecord] = {}
    none: Text | None = None
    """The reason why there is no canary."""


class TouchRecord(RecordPart):
    """A change to the values of a sample."""

    kind: Text = ""
    value: float | None = None
    input: Text = ""


class FailingSampleRecord(RecordPart):
    """A sample at which a wrong file fails."""

    point: Many[tuple[str, int]] = ()
    seed: int = 0
    flavor: Text = ""
    data: int | None = None
    touch: TouchRecord | None = None


class EvidenceRecord(RecordPart):
    """Everything that was tested on a file."""

    level: Name | None = None
    domain: Text = ""
    tested: Many[SampleRecord] = ()
    outputs: Many[OutputRecord] = ()
    yardstick: Text = ""
    factor: float | None = None
    """How many times further from the truth than PyTorch the file may be."""
    seconds: float | None = None
    spent: Mapping[str, float] = {}
    """Seconds in PyTorch, in float64 and in the runtime."""
    findings: Many[FindingRecord] = ()
    smallest: Sizes | None = None
    """The smallest point at which a wrong file fails."""
    boundaries: Many[Text] = ()
    wrong_at: Mapping[str, Many[int]] = {}
    """For each dim, the sizes at which the file is wrong; the other dims are as in the example."""
    failing: Many[FailingSampleRecord] = ()
    sides: Many[tuple[Sizes, Sizes]] = ()
    """Pairs of near points: the file is right at the first and wrong at the second."""
    undecided: int = 0
    differential: SecondExportRecord = SecondExportRecord()
    second_runtime: Text = ""
    canary: CanaryRecord | None = None
    rows: RowsRecord | None = None
    sizes: SizesRecord = SizesRecord()
    values: Many[ValuesRecord] = ()
    unreached: Many[Text] = ()
    """Branches of the model of which no sample took one side."""
