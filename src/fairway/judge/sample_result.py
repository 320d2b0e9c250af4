"""What happened at one sample, and the excuses that a file can have there."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.judge.compare import Difference, Measured
from fairway.judge.counts import DecisionCounts
from fairway.model.sample import Sample

TIES = "order of equal elements"
SUMS = "order of sums"
"""Excuses: what PyTorch leaves open, and the file does differently."""


@dataclass
class SampleResult:
    """What happened at one sample."""

    sample: Sample
    difference: Difference | None = None
    measured: dict[str, Measured] = field(default_factory=dict)
    undecided: int = 0
    """Whole numbers and bools that differ, as they do in PyTorch if a rounding moves."""
    illegal: str | None = None
    """PyTorch's own refusal, at a point whose bounds are not declared."""
    excused: str = ""
    """Why the file may differ: `TIES` or `SUMS`."""
    truthful: bool = True
    """Whether float64 was run at this sample."""
    learnt: bool = True
    """Whether the yardsticks have learnt from this sample; not after they were frozen."""
    settled: dict[str, DecisionCounts] = field(default_factory=dict)
    """By output: what PyTorch's moved runs allow at a sample that seemed wrong."""

    @property
    def kind(self) -> str:
        """Errors are pooled apart for ordinary and for edge values, which can be far worse conditioned."""
        return self.sample.flavour
