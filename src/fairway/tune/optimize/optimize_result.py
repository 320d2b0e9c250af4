"""The result of each pass, and of all kept passes together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairway.convert.result import Result
from fairway.tune.optimize.faster import Speeds


@dataclass(frozen=True)
class FileSize:
    """A file's size in bytes, including external weights, and its number of nodes."""

    bytes: int
    nodes: int


@dataclass(frozen=True)
class PassTrial:
    """One pass on top of those kept before it."""

    name: str
    kept: bool
    reason: str
    speeds: Speeds | None = None
    """Compared with the file it was applied to; None if it was not timed."""
    size: FileSize | None = None

    def as_dict(self) -> dict[str, object]:
        return {
            "pass": self.name,
            "kept": self.kept,
            "reason": self.reason,
            "speeds": None if self.speeds is None else self.speeds.as_list(),
            "size": None if self.size is None else vars(self.size),
        }


@dataclass(frozen=True)
class OptimizeResult:
    """Every pass with its reason, and the file if passes were kept."""

    source: Path
    judged_against: str
    tried: tuple[PassTrial, ...]
    before: FileSize
    after: FileSize | None = None
    together: Speeds | None = None
    """The result compared with the input, timed again after all passes."""
    result: Result | None = None
    """Verdict, evidence and record of the file that was written; None if there is none."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the passes that were kept."""
        return tuple(trial.name for trial in self.tried if trial.kept)

    def as_dict(self) -> dict[str, object]:
        """Return the part of the record about optimization."""
        return {
            "from": self.source.name,
            "judged_against": self.judged_against,
            "kept": list(self.kept),
            "passes": [trial.as_dict() for trial in self.tried],
            "before": vars(self.before),
            "after": None if self.after is None else vars(self.after),
            "together": None if self.together is None else self.together.as_list(),
        }
