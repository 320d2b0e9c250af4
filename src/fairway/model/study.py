"""The study of a model, made by running it before any export: legal values, and branches with ways to reach them."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.diagnostics import Where
from fairway.model.ranges import ValueRange
from fairway.model.sample import Sample

Line = tuple[str, int]
"""A file and a line in it."""


@dataclass(frozen=True)
class UnreachedBranch:
    """A branch in the model's own code that depends on the inputs, and of which no sample took one side."""

    where: Where
    condition: str
    missing: bool
    """The value of the condition that no sample gave."""
    about: str
    """`values` or `sizes`."""
    reads: frozenset[Line] = frozenset()
    """The lines at which it reads values, if nothing else shows that it depends on the inputs."""

    def __str__(self) -> str:
        return f"{self.where.file}:{self.where.line}: `{self.condition}` was never {str(self.missing).lower()}"


@dataclass(frozen=True)
class PythonRead:
    """A number that depends on the inputs' values and is handed to Python, where no branch asks for it."""

    where: Where
    expression: str
    lines: frozenset[Line]
    """The lines that were running, with those of the callers."""
    value: str = ""
    """The value, if it was the same at every sample."""


@dataclass(frozen=True)
class WarmUp:
    """Runs after which the model's outputs no longer depend on earlier runs."""

    points: tuple[tuple[tuple[str, int], ...], ...]
    settled: tuple[str, ...]
    """The buffers and attributes that do not change any more."""
    fails_fresh: bool
    """True if the model fails at some sizes before these runs."""
    holds_tensors: bool = True
    """True if the settled state is more than flags and numbers."""


@dataclass(frozen=True)
class Study:
    """Knowledge about a model as plain data, for every later stage."""

    ranges: tuple[ValueRange, ...] = ()
    """The range of values of each input; empty if a function makes the inputs."""
    literals: tuple[float, ...] = ()
    """Numbers in the model's own code and settings."""
    aimed: tuple[Sample, ...] = ()
    """Samples that were searched for to take the rare side of a branch."""
    unreached: tuple[UnreachedBranch, ...] = ()
    reads: tuple[PythonRead, ...] = ()
    """Values of tensors that Python reads without a branch, as for a place in a list or a flag for another function."""
    both_ways: frozenset[Line] = frozenset()
    """Lines of branches of which samples took both sides."""
    flops_per_volume: float = 0.0
    """Floating-point operations of a run, divided by the product of all dims' sizes."""
    random: tuple[Sample, Where | None] | None = None
    """The first sample at which two runs differed, and the line that drew random numbers."""
    warm_up: WarmUp | None = None
    note: str = ""
    """The reason why nothing was learned; empty if something was."""
