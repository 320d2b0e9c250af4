"""Rows as a table that a README can take."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.findings.render import printable
from fairway.matrix.inside import Row

_WIDEST = 160


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
    return markdown(cells) + (f"\n\n{same}" if same else "")


def markdown(cells: Sequence[Sequence[str]]) -> str:
    """A table, its first row the head."""
    head, *body = [[_cell(text) for text in row] for row in cells]
    lines = ["| " + " | ".join(row) + " |" for row in (head, *body)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _cell(text: str) -> str:
    """One line, no longer than is good to read, that cannot end its cell or the table."""
    flat = " ".join(printable(text).split())
    short = flat if len(flat) <= _WIDEST else flat[: _WIDEST - 1] + "…"
    return short.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


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
