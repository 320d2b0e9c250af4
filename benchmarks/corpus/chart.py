"""A bar for each column, from right to failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_COLORS = ("#2a7f4f", "#d95f02", "#c1272d", "#7b1e3a", "#8d6aa8", "#9aa0a6", "#5f6368")
_LEFT, _WIDTH, _BAR, _GAP = 210, 640, 20, 8


def draw(groups: Mapping[str, Mapping[str, Any]], outcomes: Sequence[str]) -> str:
    parts, top = [], 58
    for i, (outcome, color) in enumerate(zip(outcomes, _COLORS, strict=True)):
        x = 12 + i * 122
        parts.append(f'<rect x="{x}" y="14" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{x + 17}" y="25">{escape(outcome)}</text>')
    for name, columns in groups.items():
        if not columns:
            continue
        parts.append(f'<text x="12" y="{top}" font-weight="bold">{escape(name)}</text>')
        top += 12
        for column, sums in columns.items():
            parts += _bar(column, sums, outcomes, top)
            top += _BAR + _GAP
        top += 26
    size = f'width="{_LEFT + _WIDTH + 40}" height="{top}"'
    style = "<style>text{font:13px sans-serif;fill:#222}.n{fill:#fff;text-anchor:middle;font-size:11px}</style>"
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{ground}{"".join(parts)}</svg>\n'


def _bar(column: str, sums: Mapping[str, Any], outcomes: Sequence[str], top: int) -> list[str]:
    parts = [f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(column)}</text>']
    x = float(_LEFT)
    for outcome, color in zip(outcomes, _COLORS, strict=True):
        count = sums["outcomes"].get(outcome, 0)
        width = _WIDTH * count / sums["cases"]
        parts.append(f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{color}"/>')
        if width > 22:
            parts.append(f'<text class="n" x="{x + width / 2:.1f}" y="{top + 14}">{count}</text>')
        x += width
    return parts
