"""Rows as a Markdown table for a README."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.debug.versions.inside import MatrixRow
from fairway.diagnostics.render import format_markdown_table


def render_version_table(rows: Sequence[MatrixRow]) -> str:
    """Return the requested versions and the results as Markdown, and below them what all environments share."""
    names = list(dict.fromkeys(name for row in rows for name in row.requested))
    reason_header = ["why"] if any(row.reason for row in rows) else []
    cells = [[*names, "verdict", "route", "remedies", "seconds", *reason_header]]
    for row in rows:
        cells.append(
            [row.requested.get(name, "") for name in names]
            + [row.verdict, row.route or "–", ", ".join(row.remedies) or "–", f"{row.seconds:.0f}"]
            + ([row.reason] if reason_header else [])
        )
    same = _list_common_versions(rows)
    return "\n".join(format_markdown_table(cells)) + (f"\n\n{same}" if same else "")


def _list_common_versions(rows: Sequence[MatrixRow]) -> str:
    """List the packages that have the same version in every environment, except the requested ones."""
    rows_with_versions = [row for row in rows if row.installed]
    requested = {name for row in rows for name in row.requested}
    if not rows_with_versions:
        return ""
    same = [
        f"{name} {version}"
        for name, version in rows_with_versions[0].installed.items()
        if name not in requested and all(row.installed.get(name) == version for row in rows_with_versions)
    ]
    return f"Everywhere: {', '.join(same)}." if same else ""
