"""Evidence: the samples that were tested on a file, and the results. Plain data, ready for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from fairway.diagnostics import Finding
from fairway.diagnostics.excuses import count_samples
from fairway.judge.guards import SizeCoverage
from fairway.judge.lattice import Level
from fairway.model.dims import Point
from fairway.model.sample import Sample


@dataclass(frozen=True)
class TestedSample:
    """The result of one sample. `ratio` is the file's error in units of the allowed error."""

    point: dict[str, int]
    seed: int
    flavor: str
    right: bool
    ratio: float | None
    note: str = ""
    data: int | None = None
    ratios: tuple[float | None, ...] = ()
    """The ratio of each output, or None if it was not measured. Empty if there is one output."""
    excused: str = ""
    """The excuse for a difference: an order that PyTorch does not promise. Empty if there is none."""


@dataclass(frozen=True)
class OutputError:
    """One output over all samples: the worst ratio, and the largest errors of the file and of PyTorch itself."""

    name: str
    dtype: str
    ratio: float | None
    """None if no sample could be measured, because the file failed before there were numbers to compare."""
    file_error: float
    own_error: float


@dataclass(frozen=True)
class Differential:
    """The result of exporting by the same route from another example."""

    done: bool
    same: bool = False
    harmless: bool = False
    """True if the files differ, but both agree with PyTorch at the samples of both: the constants have no effect."""
    differences: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class FileFacts:
    """Facts about the way a file was made, for the judge."""

    guards: tuple[str, ...] | None = None
    """Conditions on the dims under which the capture is valid. None if the file's route records none."""
    sampled_because: str = "the file's own capture is not known"
    """The reason for which sizes are only sampled, if there are no guards."""
    one_sided: bool = False
    """True if the file holds only one side of every branch."""
    keeps_reads: bool = False
    """True if the file is a plain trace, which keeps every value that Python read."""
    decided: frozenset[tuple[str, int]] = frozenset()
    """Lines of branches on values that a remedy decided."""
    constant: frozenset[tuple[str, int]] = frozenset()
    """Lines at which the capture read only values that no input affects."""
    pieces: int = 0
    """Captures that were joined in the file."""
    sides: tuple[Point, ...] = ()
    """Points on either side of each condition on sizes that chooses between them."""


@dataclass(frozen=True)
class DrawnValues:
    """The values from which one input was drawn. Outside them, outputs are unverified."""

    name: str
    text: str
    low: float | None = None
    high: float | None = None
    """The ends, if they are known and were not declared."""


@dataclass(frozen=True)
class RowIndependence:
    """The result of running the rows of a batch alone, together and in another order."""

    dim: str | None
    """The dim that counts rows; None if no dim does."""
    independent: bool
    sizes: tuple[int, ...] = ()
    """The batch sizes at which rows were compared."""
    compared: str = ""
    """A description of the comparisons, and of those left out because of their cost."""
    reason: str = ""
    """The first difference, or the reason for comparing nothing. Empty if the rows are independent."""


@dataclass(frozen=True)
class Evidence:
    """The judge's results for one file."""

    level: Level
    domain: str
    tested: tuple[TestedSample, ...]
    outputs: tuple[OutputError, ...]
    yardstick: str
    factor: float
    seconds: float
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds in PyTorch, in its float64 self and in the runtime."""
    findings: tuple[Finding, ...] = ()
    smallest: dict[str, int] | None = None
    boundaries: tuple[str, ...] = ()
    wrong_at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By dim, sizes above the example at which the file is wrong with the other dims as in the example."""
    failing: tuple[Sample, ...] = ()
    """For a wrong file, a failing sample, and the same sample at the smallest failing shape."""
    sides: tuple[tuple[dict[str, int], dict[str, int]], ...] = ()
    """Pairs of the closest points found: the file is right at the first and wrong at the second."""
    undecided: int = 0
    differential: Differential = field(default_factory=lambda: Differential(done=False, note="not asked for"))
    second_runtime: str = "not asked for"
    canary: dict[str, object] | None = None
    """A right file's outputs for inputs that a server can draw again. See `fairway.model.canary`."""
    rows: RowIndependence | None = None
    """Measured for a right file. See `fairway.judge.rows`. A server merges requests only if rows are independent."""
    sizes: SizeCoverage = field(default_factory=SizeCoverage)
    values: tuple[DrawnValues, ...] = ()
    unreached: tuple[str, ...] = ()
    """Branches of the model's own code with a side that no sample took."""

    @property
    def wrong(self) -> bool:
        return any(f.severity == "error" for f in self.findings)

    @property
    def wrong_by_size(self) -> bool:
        """True if the file is right at some sizes and wrong at others, with ordinary values."""
        return bool(self.sides and self.wrong_points) and (bool(self.boundaries) or self.sizes.excluded > 0)

    @property
    def wrong_points(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """The points at which the file is wrong for ordinary values. The user's data is left out."""
        ordinary = [t for t in self.tested if t.data is None and t.flavor == "normal"]
        wrong = [t for t in ordinary if not t.right and not t.note.startswith("not legal")]
        return tuple(dict.fromkeys(tuple(t.point.items()) for t in wrong))

    @property
    def points_right(self) -> int:
        return sum(t.right for t in self.tested)

    @property
    def legal_samples(self) -> int:
        """The number of samples that PyTorch itself accepts."""
        return sum(not trial.note.startswith("not legal") for trial in self.tested)

    @property
    def samples(self) -> str:
        """The number of samples, with those that are right by an excuse listed separately with their reasons."""
        return count_samples([(t.right, t.excused) for t in self.tested if not t.note.startswith("not legal")])

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["findings"] = [f.as_dict() for f in self.findings]
        for row in fields["outputs"]:  # JSON has no infinity, and a record that holds one is not read back
            row.update({k: None for k, value in row.items() if isinstance(value, float) and not math.isfinite(value)})
        return fields
