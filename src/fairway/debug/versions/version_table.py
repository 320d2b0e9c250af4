"""Rows as a table that a README can take."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.debug.versions.inside import Row
from fairway.diagnostics.render import markdown


def table(rows: Sequence[Row]) -> str:
    """Markdown: the versions asked for, what came out, and below it what was the same in every environment."""
    names = list(dict.fromkeys(name for row in rows for name in row.wanted))
    why = ["why"] if any(row.reason for row in rows) else []
    cells = [[*names, "verdict", "route", "remedies", "seconds", *why]]
    for row in rows:
        cells.append(
            [row.wanted.get(name, "") for name in names]
            + [row.verdict, row.route or "–", ", ".join(row.remedies) or "–", f"{row.seconds:.0f}"]
            + ([row.reason] if why else [])
        )
    same = _same(rows)
    return "\n".join(markdown(cells)) + (f"\n\n{same}" if same else "")


def _same(rows: Sequence[Row]) -> str:
    """What every environment had installed alike, besides what was asked for."""
    told = [row for row in rows if row.installed]
    asked = {name for row in rows for name in row.wanted}
    if not told:
        return ""
    same = [
        f"{name} {version}"
        for name, version in told[0].installed.items()
        if name not in asked and all(row.installed.get(name) == version for row in told)
    ]
    return f"Everywhere: {', '.join(same)}." if same else ""
