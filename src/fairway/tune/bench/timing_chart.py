"""A bench as a picture: for each point, how long the calls of each arm took."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from pathlib import Path

import numpy as np

from fairway.model.dims import show
from fairway.tune.bench.bench_result import AtPoint, Bench, Speed, show_seconds

_LEFT, _WIDTH, _ROW, _RIGHT = 330, 520, 22, 190
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.h{font-weight:bold}.l{text-anchor:end}"
    ".m{stroke:#0b4d2a;stroke-width:2}.t{fill:#666;font-size:11px;text-anchor:middle}</style>"
)


def draw(found: Bench) -> str:
    """SVG. A box holds the middle half of an arm's durations, its mark is the median, the line ends at p5 and p95.

    The scale is logarithmic, so that equal ratios are equal lengths.
    """
    parts: list[str] = []
    top = 20
    for note in found.files:
        colour = "#222" if note.trusted else "#c1272d"
        mark = "" if note.trusted else "NOT VERIFIED: "
        said = escape(f"{Path(note.path).name}  {mark}{note.about}")
        parts.append(f'<text x="12" y="{top}" style="fill:{colour}">{said}</text>')
        top += 18
    for at in found.points:
        parts += _panel(at, top + 16)
        top += 56 + _ROW * (len(at.speeds) + len(at.failures))
    size = f'width="{_LEFT + _WIDTH + _RIGHT}" height="{top + 12}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{_STYLE}{ground}{"".join(parts)}</svg>\n'


def _panel(at: AtPoint, top: int) -> list[str]:
    parts = [f'<text class="h" x="12" y="{top}">at {escape(show(at.point))}</text>']
    ends = [float(q) for speed in at.speeds for q in np.percentile(speed.durations, (5, 95))] or [1.0]
    low, high = math.log10(min(ends)) - 0.05, math.log10(max(ends)) + 0.05

    def place(seconds: float) -> float:
        return _LEFT + _WIDTH * (math.log10(seconds) - low) / (high - low)

    y = top + 10
    for tick in _ticks(low, high):
        x, bottom = place(tick), y + _ROW * len(at.speeds)
        parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text class="t" x="{x:.1f}" y="{top}">{show_seconds(tick)}</text>')
    for speed in at.speeds:
        parts += _box(speed, place, y)
        y += _ROW
    for name, why in at.failures.items():
        parts.append(f'<text class="l" x="{_LEFT - 8}" y="{y + 15}">{escape(name)}</text>')
        parts.append(f'<text x="{_LEFT + 4}" y="{y + 15}" style="fill:#c1272d">{escape(f"failed: {why}"[:90])}</text>')
        y += _ROW
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten, or the powers alone where these are many."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps = (1, 2, 5) if high - low < 2 else (1,)
    return [step * 10.0**power for power in powers for step in steps if low <= math.log10(step * 10.0**power) <= high]


def _box(speed: Speed, place: Callable[[float], float], y: int) -> list[str]:
    low, first, median, third, high = (place(float(q)) for q in np.percentile(speed.durations, (5, 25, 50, 75, 95)))
    middle = y + _ROW / 2
    said = "" if speed.ratio is None else str(speed.ratio)
    return [
        f'<text class="l" x="{_LEFT - 8}" y="{y + 15}">{escape(speed.arm)}</text>',
        f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="#2a7f4f"/>',
        f'<rect x="{first:.1f}" y="{y + 5}" width="{max(third - first, 1):.1f}" height="{_ROW - 10}" fill="#a8d5ba"/>',
        f'<line class="m" x1="{median:.1f}" y1="{y + 3}" x2="{median:.1f}" y2="{y + _ROW - 3}"/>',
        f'<text x="{_LEFT + _WIDTH + 10}" y="{y + 15}">{escape(said)}</text>',
    ]
