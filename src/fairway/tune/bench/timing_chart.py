"""A chart of a bench: the durations of each arm's calls, at each point."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from pathlib import Path

import numpy as np

from fairway.model.dims import describe_point
from fairway.tune.bench.bench_result import ArmSpeed, BenchResult, PointTimings, format_seconds

_LEFT, _WIDTH, _ROW, _RIGHT = 330, 520, 22, 190
_STYLE = (
    "<style>text{font:12px sans-serif;fill:#222}.h{font-weight:bold}.l{text-anchor:end}"
    ".m{stroke:#0b4d2a;stroke-width:2}.t{fill:#666;font-size:11px;text-anchor:middle}</style>"
)


def draw_timings(result: BenchResult) -> str:
    """Return an SVG.

    A box holds the middle half of an arm's durations, its mark is the median, and the line ends at p5 and p95. The
    scale is logarithmic, so that equal ratios are equal lengths.
    """
    parts: list[str] = []
    top = 20
    for note in result.files:
        color = "#222" if note.is_verified else "#c1272d"
        mark = "" if note.is_verified else "NOT VERIFIED: "
        label = escape(f"{Path(note.path).name}  {mark}{note.about}")
        parts.append(f'<text x="12" y="{top}" style="fill:{color}">{label}</text>')
        top += 18
    for at in result.points:
        parts += _draw_panel(at, top + 16)
        top += 56 + _ROW * (len(at.speeds) + len(at.failures))
    size = f'width="{_LEFT + _WIDTH + _RIGHT}" height="{top + 12}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{_STYLE}{ground}{"".join(parts)}</svg>\n'


def _draw_panel(at: PointTimings, top: int) -> list[str]:
    parts = [f'<text class="h" x="12" y="{top}">at {escape(describe_point(at.point))}</text>']
    extremes = [float(q) for speed in at.speeds for q in np.percentile(speed.durations, (5, 95))] or [1.0]
    low, high = math.log10(min(extremes)) - 0.05, math.log10(max(extremes)) + 0.05

    def place(seconds: float) -> float:
        return _LEFT + _WIDTH * (math.log10(seconds) - low) / (high - low)

    y = top + 10
    for tick in _list_ticks(low, high):
        x, bottom = place(tick), y + _ROW * len(at.speeds)
        parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text class="t" x="{x:.1f}" y="{top}">{format_seconds(tick)}</text>')
    for speed in at.speeds:
        parts += _draw_box(speed, place, y)
        y += _ROW
    for name, why in at.failures.items():
        parts.append(f'<text class="l" x="{_LEFT - 8}" y="{y + 15}">{escape(name)}</text>')
        parts.append(f'<text x="{_LEFT + 4}" y="{y + 15}" style="fill:#c1272d">{escape(f"failed: {why}"[:90])}</text>')
        y += _ROW
    return parts


def _list_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of each power of ten, or only the powers if there are many."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps = (1, 2, 5) if high - low < 2 else (1,)
    return [step * 10.0**power for power in powers for step in steps if low <= math.log10(step * 10.0**power) <= high]


def _draw_box(speed: ArmSpeed, place: Callable[[float], float], y: int) -> list[str]:
    low, first, median, third, high = (place(float(q)) for q in np.percentile(speed.durations, (5, 25, 50, 75, 95)))
    middle = y + _ROW / 2
    ratio = "" if speed.ratio is None else str(speed.ratio)
    return [
        f'<text class="l" x="{_LEFT - 8}" y="{y + 15}">{escape(speed.arm)}</text>',
        f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="#2a7f4f"/>',
        f'<rect x="{first:.1f}" y="{y + 5}" width="{max(third - first, 1):.1f}" height="{_ROW - 10}" fill="#a8d5ba"/>',
        f'<line class="m" x1="{median:.1f}" y1="{y + 3}" x2="{median:.1f}" y2="{y + _ROW - 3}"/>',
        f'<text x="{_LEFT + _WIDTH + 10}" y="{y + 15}">{escape(ratio)}</text>',
    ]
