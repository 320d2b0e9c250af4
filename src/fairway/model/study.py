"""What was learned about a model by running it before any export: legal values, and branches with how to reach them."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.diagnostics import Where
from fairway.model.ranges import ValueRange
from fairway.model.sample import Sample

Line = tuple[str, int]
"""A file and a line in it."""


@dataclass(frozen=True)
class Unreached:
    """A branch of the model's own code that depends on the inputs and of which no sample took one side."""

    where: Where
    condition: str
    missing: bool
    """The answer that no sample gave."""
    about: str
    """`values` or `sizes`."""
    reads: frozenset[Line] = frozenset()
    """Lines at which values are read for it, if nothing else shows that it depends on the inputs."""

    def __str__(self) -> str:
        return f"{self.where.file}:{self.where.line}: `{self.condition}` was never {str(self.missing).lower()}"


@dataclass(frozen=True)
class WarmUp:
    """Runs after which the model's answers no longer depend on what was run before."""

    points: tuple[tuple[tuple[str, int], ...], ...]
    settled: tuple[str, ...]
    """The buffers and attributes that do not change any more."""
    fails_fresh: bool
    """Whether the model fails at some sizes as long as these runs were not made."""
    holds_tensors: bool = True
    """Whether more than flags and numbers is settled."""


@dataclass(frozen=True)
class Study:
    """Plain data that every later stage may read."""

    ranges: tuple[ValueRange, ...] = ()
    """What each input is drawn from; empty if a function makes the inputs."""
    literals: tuple[float, ...] = ()
    """Numbers in the model's own code and settings."""
    aimed: tuple[Sample, ...] = ()
    """Samples found on purpose to take the rare side of a branch."""
    unreached: tuple[Unreached, ...] = ()
    both_ways: frozenset[Line] = frozenset()
    """Lines of branches of which samples took both sides."""
    flops_per_volume: float = 0.0
    """Floating-point operations of a run, divided by the product of all dims' sizes."""
    random: tuple[Sample, Where | None] | None = None
    """The first sample at which two runs differed, and the line that drew random numbers."""
    warm_up: WarmUp | None = None
    note: str = ""
    """Why nothing was learned, if so."""
