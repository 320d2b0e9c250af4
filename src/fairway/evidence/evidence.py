"""Evidence: what was tested, how, and how it came out. Plain data, fit for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from fairway.evidence.lattice import Level, Sample
from fairway.findings import Finding


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

    @property
    def wrong(self) -> bool:
        return any(f.severity == "error" for f in self.findings)

    @property
    def points_right(self) -> int:
        return sum(t.right for t in self.tested)

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        fields["findings"] = [f.as_dict() for f in self.findings]
        for row in fields["outputs"]:  # JSON has no infinity, and a record that holds one is not read back
            row.update({k: None for k, value in row.items() if isinstance(value, float) and not math.isfinite(value)})
        return fields
