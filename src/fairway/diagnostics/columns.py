"""How wide a line may be, and what becomes of a table that a terminal has no room for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

WIDEST = 110
"""Columns of running text. A pipe always gets these: a log does not depend on somebody's window."""

NARROWEST = 30


def terminal() -> int | None:
    """Columns of the terminal that standard output goes to; None where it goes elsewhere."""
    try:
        return max(NARROWEST, os.get_terminal_size(sys.stdout.fileno()).columns) if sys.stdout.isatty() else None
    except (OSError, ValueError, AttributeError):  # a notebook's standard output has no number
        return None


def room() -> int:
    """Columns to wrap running text into."""
    return min(WIDEST, terminal() or WIDEST)


def fit(lines: Sequence[str], indent: int = 0) -> bool:
    """Whether lines can stand as they are. Where there is no terminal, nothing is broken."""
    wide = terminal()
    return wide is None or max(map(len, lines), default=0) + indent <= wide


def aligned(rows: Sequence[Sequence[str]], indent: int = 0) -> list[str]:
    """Rows, the first of them the heads, side by side in columns; or one below the other where that is too wide."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return lines if fit(lines, indent) else stacked(rows)


def stacked(rows: Sequence[Sequence[str]]) -> list[str]:
    """Each row as a few lines: its first cell, then the others with their heads."""
    heads, *rest = rows
    lines = []
    for row in rest:
        lines.append(row[0])
        cells = [(head, cell) for head, cell in zip(heads[1:], row[1:], strict=True) if cell.strip()]
        lines += [f"  {head.strip()} {cell.strip()}" if head else f"  {cell.strip()}" for head, cell in cells]
    return lines
