"""What became of each pass, and what they come to together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.convert.result import Result
from fairway.tune.optimize.faster import Speeds


@dataclass(frozen=True)
class FileSize:
    """A file's bytes, with the weights beside it, and its nodes."""

    bytes: int
    nodes: int


@dataclass(frozen=True)
class PassTrial:
    """One pass on top of those kept before it."""

    name: str
    kept: bool
    reason: str
    speeds: Speeds | None = None
    """Beside the file it was applied to; None where it did not come to timing."""
    size: FileSize | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "pass": self.name,
            "kept": self.kept,
            "reason": self.reason,
            "speeds": None if self.speeds is None else self.speeds.as_list(),
            "size": None if self.size is None else vars(self.size),
        }


@dataclass(frozen=True)
class Optimised:
    """Every pass with its reason; the file, where some were kept."""

    source: Path
    judged_against: str
    tried: tuple[PassTrial, ...]
    before: FileSize
    after: FileSize | None = None
    together: Speeds | None = None
    """The result beside the input, timed anew after everything was kept."""
    result: Result | None = None
    """Verdict, evidence and record of the file that was written; None where there is none."""

    @property
    def kept(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.tried if one.kept)

    def as_dict(self) -> dict[str, Any]:
        """The part of the record that is about optimising."""
        return {
            "from": self.source.name,
            "judged_against": self.judged_against,
            "kept": list(self.kept),
            "passes": [one.as_dict() for one in self.tried],
            "before": vars(self.before),
            "after": None if self.after is None else vars(self.after),
            "together": None if self.together is None else self.together.as_list(),
        }
