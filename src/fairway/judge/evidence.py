"""Evidence: what was tested, how, and how it came out. Plain data, fit for JSON."""

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
class Tested:
    """One sample's outcome. `ratio` is the file's error in units of what the yardstick allows."""

    point: dict[str, int]
    seed: int
    flavour: str
    right: bool
    ratio: float | None
    note: str = ""
    data: int | None = None
    ratios: tuple[float | None, ...] = ()
    """That of each output, in their order; left out where there is one output. None where it was not measured."""
    excused: str = ""
    """Why the file may differ here: an order that PyTorch leaves open. Empty if it does not."""


@dataclass(frozen=True)
class OutputError:
    """One output over all samples: the worst ratio, and the largest errors of the file and of PyTorch itself."""

    name: str
    dtype: str
    ratio: float | None
    """None where no sample could be measured: the file failed before there were numbers to compare."""
    file_error: float
    own_error: float


@dataclass(frozen=True)
class Differential:
    """Whether the same route from another example gives the same file."""

    done: bool
    same: bool = False
    harmless: bool = False
    """The files differ, but both agree with PyTorch at the samples of both: the constants have no effect."""
    differences: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class FileFacts:
    """What is known about how a file came about, for the judge."""

    guards: tuple[str, ...] | None = None
    """Conditions on the dims under which the capture is valid; None if the file's route writes none down."""
    sampled_because: str = "the file's own capture is not known"
    """Why sizes are only sampled, if there are no guards."""
    one_sided: bool = False
    """Whether the file holds one side only of every branch."""
    decided: frozenset[tuple[str, int]] = frozenset()
    """Lines of branches on values that a remedy decided."""
    constant: frozenset[tuple[str, int]] = frozenset()
    """Lines at which the capture read values that no input reaches, and no others."""
    pieces: int = 0
    """Captures that were joined in the file."""
    sides: tuple[Point, ...] = ()
    """Points on either side of each condition on sizes that chooses between them."""


@dataclass(frozen=True)
class DrawnValues:
    """What one input was drawn from. Outside it, outputs are unverified."""

    name: str
    text: str
    low: float | None = None
    high: float | None = None
    """The ends, if they are known and were not declared."""


@dataclass(frozen=True)
class RowIndependence:
    """Whether the rows of a batch can be run alone, together and in another order with the same answers."""

    dim: str | None
    """The dim that counts rows; None if no dim does."""
    independent: bool
    sizes: tuple[int, ...] = ()
    """The batch sizes at which rows were compared."""
    compared: str = ""
    """What was compared, in words, and what was left out because of its cost."""
    reason: str = ""
    """The first difference, or why nothing was compared; empty if the rows are independent."""


@dataclass(frozen=True)
class Evidence:
    """Everything the judge saw of one file."""

    level: Level
    domain: str
    tested: tuple[Tested, ...]
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
    """By dim, sizes above the example at which the file was seen wrong, the others being as in the example."""
    failing: tuple[Sample, ...] = ()
    """For a wrong file, a sample at which it fails, and that one at the smallest failing shape."""
    sides: tuple[tuple[dict[str, int], dict[str, int]], ...] = ()
    """Pairs of points as near to each other as were found: the file is right at the first and wrong at the second."""
    undecided: int = 0
    differential: Differential = field(default_factory=lambda: Differential(done=False, note="not asked for"))
    second_runtime: str = "not asked for"
    canary: dict[str, Any] | None = None
    """What a right file answered to inputs that a server can draw again; see `subject.canary`."""
    rows: RowIndependence | None = None
    """Measured for a right file; see `evidence.rows`. A server merges requests only if this shows independence."""

    sizes: SizeCoverage = field(default_factory=SizeCoverage)
    values: tuple[DrawnValues, ...] = ()
    unreached: tuple[str, ...] = ()
    """Branches of the model's own code of which no sample took one side."""

    @property
    def wrong(self) -> bool:
        return any(f.severity == "error" for f in self.findings)

    @property
    def wrong_by_size(self) -> bool:
        """Whether the file is right at some sizes and wrong at others, with ordinary values."""
        return bool(self.sides and self.wrong_points) and (bool(self.boundaries) or self.sizes.excluded > 0)

    @property
    def wrong_points(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """The points at which the file is wrong for ordinary values, your own tensors left out."""
        ordinary = [t for t in self.tested if t.data is None and t.flavour == "normal"]
        wrong = [t for t in ordinary if not t.right and not t.note.startswith("not legal")]
        return tuple(dict.fromkeys(tuple(t.point.items()) for t in wrong))

    @property
    def points_right(self) -> int:
        return sum(t.right for t in self.tested)

    @property
    def samples(self) -> str:
        """The samples counted, those that are right by an excuse apart with their reasons."""
        return count_samples([(t.right, t.excused) for t in self.tested if not t.note.startswith("not legal")])

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["findings"] = [f.as_dict() for f in self.findings]
        for row in fields["outputs"]:  # JSON has no infinity, and a record that holds one is not read back
            row.update({k: None for k, value in row.items() if isinstance(value, float) and not math.isfinite(value)})
        return fields
