"""Fairway's own column: one export at its standard level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from case import Case


def export(case: Case, path: Path, timeout: float) -> dict[str, Any]:
    import fairway

    try:
        result = fairway.export(
            case.build(), list(case.lines), path, bounds=case.bounds, multiples=case.multiples, timeout=timeout / 4
        )
    except fairway.UserError as error:
        said = error.finding
        return {"outcome": "fails", "verdict": "refused", "note": str(said)[:300], "codes": [said.code]}
    row: dict[str, Any] = {
        "verdict": result.verdict,
        "route": result.route,
        "remedies": list(result.remedies),
        "codes": [finding.code for finding in result.findings],
    }
    if result.path is None:
        row |= {"outcome": "fails", "note": "; ".join(f"{f.code}: {f.seen[:160]}" for f in result.findings[:2])}
    return row
