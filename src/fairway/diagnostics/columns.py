"""Line widths of a terminal, and tables that adapt to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

MAX_TEXT_COLUMNS = 110
"""The width of running text. A pipe always gets it, so that logs do not depend on a window."""

MIN_TERMINAL_COLUMNS = 30


def get_terminal_columns() -> int | None:
    """Return the width of the terminal behind standard output, or None if there is none."""
    try:
        return (
            max(MIN_TERMINAL_COLUMNS, os.get_terminal_size(sys.stdout.fileno()).columns)
            if sys.stdout.isatty()
            else None
        )
    except (OSError, ValueError, AttributeError):  # a notebook's standard output has no file number
        return None


def get_text_columns() -> int:
    """Return the width to wrap running text to."""
    return min(MAX_TEXT_COLUMNS, get_terminal_columns() or MAX_TEXT_COLUMNS)


def fits_terminal(lines: Sequence[str], indent: int = 0) -> bool:
    """Return whether the lines fit without wrapping. Without a terminal everything fits."""
    columns = get_terminal_columns()
    return columns is None or max(map(len, lines), default=0) + indent <= columns


def align_columns(rows: Sequence[Sequence[str]], indent: int = 0) -> list[str]:
    """Return rows as aligned columns, or stacked if that is too wide. The first row contains the headings."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return lines if fits_terminal(lines, indent) else stack_rows(rows)


def stack_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as several lines: its first cell, then the others with their headings."""
    headings, *rest = rows
    lines = []
    for row in rest:
        lines.append(row[0])
        cells = [(heading, cell) for heading, cell in zip(headings[1:], row[1:], strict=True) if cell.strip()]
        lines += [f"  {heading.strip()} {cell.strip()}" if heading else f"  {cell.strip()}" for heading, cell in cells]
    return lines
