"""A ranking as a picture: a bar for each group, on a log scale, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from fairway.tune.quantize.layer_trials import Sensed

_LEFT, _WIDTH, _ROW, _RIGHT, _TOP = 420, 420, 18, 110, 54
_MOST = 60
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.h{font-weight:bold}.l{text-anchor:end}"
    ".t{fill:#666;font-size:11px;text-anchor:middle}</style>"
)


def draw(ranked: Sequence[Sensed], metric: str, title: str) -> str:
    """SVG. Bars are drops with the group alone quantised; a dot is the drop with it alone kept in float."""
    shown = ranked[:_MOST]
    numbers = [n for one in shown for n in (one.alone, one.kept) if math.isfinite(n) and n > 0]
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
    for number, one in enumerate(shown):
        y = _TOP + _ROW * number
        error = one.alone_error or 0.0
        name = one.group.name if len(one.group.units) > 1 else str(one.group.units[0])
        parts += [
            f'<text class="l" x="{_LEFT - 8}" y="{y + 13}">{escape(name[-60:])}</text>',
            f'<rect x="{_LEFT}" y="{y + 3}" width="{x(one.alone) - _LEFT:.1f}" height="{_ROW - 6}" fill="#a8d5ba"/>',
            f'<line x1="{x(one.alone - 2 * error):.1f}" y1="{y + 9}" x2="{x(one.alone + 2 * error):.1f}" y2="{y + 9}" '
            f'stroke="#0b4d2a" stroke-width="2"/>',
            f'<circle cx="{x(one.kept):.1f}" cy="{y + 9}" r="2.5" fill="#c1272d"/>',
            f'<text x="{_LEFT + _WIDTH + 10}" y="{y + 13}">{one.alone:.2e}</text>',
        ]
    size = f'width="{_LEFT + _WIDTH + _RIGHT}" height="{bottom + 14}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{_STYLE}{ground}{"".join(parts)}</svg>\n'
