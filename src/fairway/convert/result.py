"""What `fairway.export` and `fairway.verify` answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.convert.ladder.climb import Verdict
from fairway.diagnostics import Finding
from fairway.judge.evidence import Evidence


@dataclass(frozen=True)
class Result:
    """A verdict with everything it stands on. Printed it is a table fit for a terminal; a notebook shows it as HTML."""

    verdict: Verdict
    path: Path | None
    """The file that was written: verified, or unproven and marked so. None where nothing fit to use came out."""
    route: str | None
    remedies: tuple[str, ...]
    findings: tuple[Finding, ...]
    evidence: Evidence | None
    record: dict[str, Any]

    @property
    def verified(self) -> bool:
        return self.verdict == "verified"

    def __str__(self) -> str:
        from fairway.diagnostics.render import render_result

        return render_result(self)

    def _repr_html_(self) -> str:
        from fairway.record.page.notebook import card

        return card(self.record)
