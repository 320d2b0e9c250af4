"""The result of `fairway.export` and `fairway.verify`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairway.convert.types import Verdict
from fairway.diagnostics import Finding
from fairway.judge.evidence import Evidence
from fairway.record.schema import Record


@dataclass(frozen=True, repr=False)
class Result:
    """A verdict with its evidence. It prints as a table, and a notebook shows it as HTML."""

    verdict: Verdict
    path: Path | None
    """The file that was written, verified or unproven. None if no usable file was made."""
    route: str | None
    remedies: tuple[str, ...]
    findings: tuple[Finding, ...]
    evidence: Evidence | None
    record: Record
    """Everything known about the file. `record.as_dict()` is the JSON beside the file."""

    @property
    def verified(self) -> bool:
        return self.verdict == "verified"

    def __repr__(self) -> str:
        where = "" if self.path is None else f" {self.path}"
        codes = " ".join(dict.fromkeys(finding.code for finding in self.findings))
        return f"<Result {self.verdict}{where}{f': {codes}' if codes else ''}; print it for the evidence>"

    def __str__(self) -> str:
        from fairway.diagnostics.render import render_result

        return render_result(self)

    def _repr_html_(self) -> str:
        from fairway.record.page.notebook import render_card

        return render_card(self.record)
