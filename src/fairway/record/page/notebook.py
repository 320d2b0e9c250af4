"""Show a result in a notebook: plain HTML without a script, because notebooks run only scripts that they trust."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from fairway.record.page.sanitize import PageData
from fairway.record.page.summary import ILLEGAL, WRONG, Summary, summarize
from fairway.record.schema import Record

COLORS = {"verified": "#17714a", "wrong": "#b3261e", "failed": "#b3261e"}
OTHER_COLOR = "#855b00"
PLOT_WIDTH = 360
PLOT_HEIGHT = 150
PLOT_HEIGHT_OF_ONE_DIM = 36
PLOT_MARGIN = 12
MIN_RATIO_FOR_LOG_SCALE = 60
"""A dim with a larger range, as the ratio of its bounds, has a logarithmic axis."""


def render_card(record: Record) -> str:
    """Return verdict, domain, errors, ladder and findings. The colors suit light and dark notebooks."""
    story = summarize(record, "")
    evidence = story["evidence"]
    color = COLORS.get(story["verdict"], OTHER_COLOR)
    file = "" if record.file is None else record.file.name
    facts = [story["subject"]["name"], file, story["route"], f"opset {story['opset']}" if story["opset"] else ""]
    parts = [
        f'<div><b style="background:{color};color:#fff;border-radius:1em;padding:.1em .8em">'
        f"{_text(story['verdict'])}</b> {_text(' · '.join(fact for fact in facts if fact))}</div>",
        f"<div>{_text(describe_domain(story))}</div>",
    ]
    if evidence is not None:
        parts += [f"<div><b>{_text(boundary)}</b></div>" for boundary in evidence["boundaries"]]
        parts += [_plot_points(story), _render_errors(evidence)]
    parts.append(_render_ladder(story))
    parts += [_render_finding(finding, number == 0) for number, finding in enumerate(story["findings"])]
    return f'<div class="fairway" style="max-width:60em;line-height:1.5">{"".join(parts)}</div>'


def _text(value: object) -> str:
    return f"<bdi>{html.escape(str(value))}</bdi>"


def describe_domain(story: Summary) -> str:
    dims = ", ".join(f"{dim['name']} {dim['low']}..{dim['high']}" for dim in story["dims"]) or "one fixed shape"
    evidence = story["evidence"]
    if evidence is None:
        return dims
    return f"{dims}: {evidence['samples']} ({evidence['level']}); {evidence['yardstick']}"


def _render_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cell = '<t{0} style="text-align:left;padding:.1em 1em .1em 0">{1}</t{0}>'
    head = "".join(cell.format("h", html.escape(text)) for text in heads)
    body = "".join(f"<tr>{''.join(cell.format('d', text) for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _render_errors(evidence: PageData) -> str:
    rows = [
        [_text(output["name"]), *(_format_number(output[key]) for key in ("ratio", "file_error", "own_error"))]
        for output in evidence["outputs"]
    ]
    return _render_table(("output", "of allowed", "file's error", "PyTorch's own"), rows)


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _render_ladder(story: Summary) -> str:
    rows = [
        [
            _text(rung["route"]),
            _text(rung["verdict"]),
            f"{rung['seconds']:.1f} s",
            f"{rung['peak_mb']} MB",
            _text(" ".join(dict.fromkeys(finding["code"] for finding in rung["findings"]))),
        ]
        for rung in story["ladder"]
    ]
    return _render_table(("rung", "verdict", "time", "memory", "findings"), rows) if rows else ""


def _render_finding(finding: PageData, is_open: bool) -> str:
    where = finding["where"]
    place = f"{where['file']}:{where['line']}" if where["file"] else where["node"]
    source = f"<pre>{_text(where['source'])}</pre>" if where["source"] else ""
    steps = "".join(f"<li>{_text(step)}</li>" for step in finding["todo"])
    return (
        f"<details{' open' if is_open else ''}><summary>{_text(finding['code'])} {_text(finding['title'])}</summary>"
        f"<div>{_text(finding['seen'])}</div><div>{_text(place)}</div>{source}<ol>{steps}</ol></details>"
    )


def _plot_points(story: Summary) -> str:
    """Draw the points over the two dims with the widest ranges. Crosses are wrong."""
    dims = sorted(range(len(story["dims"])), key=lambda number: _range_ratio(story["dims"][number]), reverse=True)[:2]
    if not dims:
        return ""
    axes = [story["dims"][number] for number in dims]
    height = PLOT_HEIGHT if len(axes) > 1 else PLOT_HEIGHT_OF_ONE_DIM
    marks = {}
    for sizes, state, *_ in sorted(story["evidence"]["tested"], key=lambda row: row[1] == WRONG):
        point = [sizes[number] for number in dims]
        if state != ILLEGAL and None not in point:
            x = _scale(axes[0], point[0], PLOT_MARGIN, PLOT_WIDTH - PLOT_MARGIN)
            y = _scale(axes[1], point[1], height - PLOT_MARGIN, PLOT_MARGIN) if len(axes) > 1 else height / 2
            marks[round(x), round(y)] = state
    drawn = "".join(_draw_mark(x, y, state) for (x, y), state in marks.items())
    ranges = [f"{dim['name']} {dim['low']}..{dim['high']}" for dim in axes]
    names = ", ".join(f"{text} {axis}" for text, axis in zip(ranges, ("across", "upwards"), strict=False))
    return (
        f'<svg width="{PLOT_WIDTH}" height="{height}" role="img" style="margin:.4em 0">'
        f"<title>{html.escape(names)}</title>"
        f'<rect x="1" y="1" width="{PLOT_WIDTH - 2}" height="{height - 2}" fill="none" stroke="#8a949c"/>{drawn}</svg>'
        f"<div><small>{_text(names)}</small></div>"
    )


def _range_ratio(dim: PageData) -> float:
    return float(dim["high"] / max(dim["low"], 1))


def _scale(dim: PageData, size: int, start: float, end: float) -> float:
    low, high = dim["low"], max(dim["high"], dim["low"] + 1)
    share = (size - low) / (high - low)
    if low > 0 and high / low >= MIN_RATIO_FOR_LOG_SCALE:
        share = math.log(max(size, low) / low) / math.log(high / low)
    return float(start + min(max(share, 0.0), 1.0) * (end - start))


def _draw_mark(x: int, y: int, state: int) -> str:
    if state == WRONG:
        return f'<path d="M{x - 4} {y - 4}l8 8m0-8l-8 8" stroke="#d0453b" stroke-width="2"/>'
    return f'<circle cx="{x}" cy="{y}" r="3.5" fill="#2a9a69"/>'
