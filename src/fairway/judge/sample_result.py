"""The result of one sample, and the excuses that a file can have there."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.judge.compare import Difference, Measurement
from fairway.judge.counts import DecisionCounts
from fairway.model.sample import Sample

TIES_EXCUSE = "order of equal elements"
SUMS_EXCUSE = "order of sums"
"""Excuses: an order that PyTorch does not promise, and that the file takes differently."""


@dataclass
class SampleResult:
    """The result of one sample."""

    sample: Sample
    difference: Difference | None = None
    measured: dict[str, Measurement] = field(default_factory=dict)
    undecided: int = 0
    """The number of whole numbers and bools that differ as they do in PyTorch if a rounding moves."""
    illegal: str | None = None
    """PyTorch's refusal of a point whose bounds are not declared."""
    excused: str = ""
    """The excuse for a difference: `TIES_EXCUSE` or `SUMS_EXCUSE`."""
    has_truth: bool = True
    """True if the truth was computed at this sample."""
    is_learned: bool = True
    """True if the yardsticks learn from this sample. They do not after they were frozen."""
    settled: dict[str, DecisionCounts] = field(default_factory=dict)
    """By output: the counts that PyTorch's moved runs allow at a sample that seemed wrong."""

    @property
    def kind(self) -> str:
        """The flavor. Errors of edge values are kept separately, because these can be far worse conditioned."""
        return self.sample.flavor
