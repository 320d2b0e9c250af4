"""A chart of a ranking: a bar for each group, on a log scale, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from fairway.tune.quantize.layer_trials import GroupSensitivity

_LEFT, _WIDTH, _ROW, _RIGHT, _TOP = 420, 420, 18, 110, 54
_MAX_BARS = 60
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.h{font-weight:bold}.l{text-anchor:end}"
    ".t{fill:#666;font-size:11px;text-anchor:middle}</style>"
)


def draw_ranking(ranked: Sequence[GroupSensitivity], metric: str, title: str) -> str:
    """Return an SVG. A bar is the drop with the group quantized alone; a dot, with it kept in float alone."""
    shown = ranked[:_MAX_BARS]
    numbers = [n for entry in shown for n in (entry.alone, entry.kept) if math.isfinite(n) and n > 0]
    low = math.floor(math.log10(min(numbers))) if numbers else -6
    high = max(math.ceil(math.log10(max(numbers))) if numbers else 0, low + 1)

    def x(value: float) -> float:
        if not math.isfinite(value):
            return _LEFT + (_WIDTH if value > 0 else 0)
        return _LEFT + _WIDTH * min(1.0, max(0.0, (math.log10(max(value, 1e-300)) - low) / (high - low)))

    more = f", {len(shown)} of {len(ranked)} shown" if len(shown) < len(ranked) else ""
    parts = [f'<text class="h" x="12" y="20">{escape(title)}: drop by {escape(metric)}{more}</text>']
    bottom = _TOP + _ROW * len(shown)
    for power in range(low, high + 1):
        at = x(10.0**power)
        parts.append(f'<line x1="{at:.1f}" y1="{_TOP - 4}" x2="{at:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text class="t" x="{at:.1f}" y="{_TOP - 8}">1e{power}</text>')
    for number, entry in enumerate(shown):
        y = _TOP + _ROW * number
        error = entry.alone_error or 0.0
        name = entry.group.name if len(entry.group.units) > 1 else str(entry.group.units[0])
        parts += [
            f'<text class="l" x="{_LEFT - 8}" y="{y + 13}">{escape(name[-60:])}</text>',
            f'<rect x="{_LEFT}" y="{y + 3}" width="{x(entry.alone) - _LEFT:.1f}" height="{_ROW - 6}" fill="#a8d5ba"/>',
            f'<line x1="{x(entry.alone - 2 * error):.1f}" y1="{y + 9}" '
            f'x2="{x(entry.alone + 2 * error):.1f}" y2="{y + 9}" '
            f'stroke="#0b4d2a" stroke-width="2"/>',
            f'<circle cx="{x(entry.kept):.1f}" cy="{y + 9}" r="2.5" fill="#c1272d"/>',
            f'<text x="{_LEFT + _WIDTH + 10}" y="{y + 13}">{entry.alone:.2e}</text>',
        ]
    size = f'width="{_LEFT + _WIDTH + _RIGHT}" height="{bottom + 14}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{_STYLE}{ground}{"".join(parts)}</svg>\n'
