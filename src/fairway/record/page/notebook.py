"""A result inside a notebook: plain HTML without a script, since notebooks run none that they do not trust."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fairway.record.page.sanitize import fields, name
from fairway.record.page.summary import ILLEGAL, WRONG, Story, tell

COLOURS = {"verified": "#17714a", "wrong": "#b3261e", "failed": "#b3261e"}
DOUBT = "#855b00"
WIDE, HIGH, LOW, EDGE = 360, 150, 36, 12
"""Of the picture: `LOW` is its height where one dim varies."""

FAR = 60
"""A dim that ranges over more than so many times its lowest size is drawn by ratio."""


def card(record: Mapping[str, Any]) -> str:
    """Verdict, domain, errors, ladder and findings, in that order. Colours hold on light and on dark notebooks."""
    story = tell(record, "")
    evidence = story["evidence"]
    colour = COLOURS.get(story["verdict"], DOUBT)
    file = name(fields(record.get("file")).get("name"))
    about = [story["subject"]["name"], file, story["route"], f"opset {story['opset']}" if story["opset"] else ""]
    parts = [
        f'<div><b style="background:{colour};color:#fff;border-radius:1em;padding:.1em .8em">'
        f"{_text(story['verdict'])}</b> {_text(' · '.join(one for one in about if one))}</div>",
        f"<div>{_text(_domain(story))}</div>",
    ]
    if evidence is not None:
        parts += [f"<div><b>{_text(one)}</b></div>" for one in evidence["boundaries"]]
        parts += [_picture(story), _errors(evidence)]
    parts += [_ladder(story), *(_finding(one, number == 0) for number, one in enumerate(story["findings"]))]
    return f'<div class="fairway" style="max-width:60em;line-height:1.5">{"".join(parts)}</div>'


def _text(value: Any) -> str:
    return f"<bdi>{html.escape(str(value))}</bdi>"


def _domain(story: Story) -> str:
    dims = ", ".join(f"{dim['name']} {dim['low']}..{dim['high']}" for dim in story["dims"]) or "one fixed shape"
    evidence = story["evidence"]
    if evidence is None:
        return dims
    return f"{dims}: {evidence['samples']} ({evidence['level']}); {evidence['yardstick']}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cell = '<t{0} style="text-align:left;padding:.1em 1em .1em 0">{1}</t{0}>'
    head = "".join(cell.format("h", html.escape(one)) for one in heads)
    body = "".join(f"<tr>{''.join(cell.format('d', one) for one in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _errors(evidence: Mapping[str, Any]) -> str:
    rows = [
        [_text(one["name"]), *(_number(one[key]) for key in ("ratio", "file_error", "own_error"))]
        for one in evidence["outputs"]
    ]
    return _table(("output", "of allowed", "file's error", "PyTorch's own"), rows)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _ladder(story: Story) -> str:
    rows = [
        [
            _text(rung["route"]),
            _text(rung["verdict"]),
            f"{rung['seconds']:.1f} s",
            f"{rung['peak_mb']} MB",
            _text(" ".join(dict.fromkeys(one["code"] for one in rung["findings"]))),
        ]
        for rung in story["ladder"]
    ]
    return _table(("rung", "verdict", "time", "memory", "findings"), rows) if rows else ""


def _finding(one: Mapping[str, Any], first: bool) -> str:
    where = one["where"]
    place = f"{where['file']}:{where['line']}" if where["file"] else where["node"]
    source = f"<pre>{_text(where['source'])}</pre>" if where["source"] else ""
    steps = "".join(f"<li>{_text(step)}</li>" for step in one["todo"])
    return (
        f"<details{' open' if first else ''}><summary>{_text(one['code'])} {_text(one['title'])}</summary>"
        f"<div>{_text(one['seen'])}</div><div>{_text(place)}</div>{source}<ol>{steps}</ol></details>"
    )


def _picture(story: Story) -> str:
    """The points over the two dims that range furthest; crosses are wrong."""
    dims = story["dims"]
    order = sorted(range(len(dims)), key=lambda i: -dims[i]["high"] / max(dims[i]["low"], 1))[:2]
    if not order:
        return ""
    high = HIGH if len(order) > 1 else LOW
    marks = {}
    for sizes, state, *_ in sorted(story["evidence"]["tested"], key=lambda one: one[1] == WRONG):
        if state != ILLEGAL and all(sizes[i] is not None for i in order):
            x = _along(dims[order[0]], sizes[order[0]], EDGE, WIDE - EDGE)
            y = _along(dims[order[1]], sizes[order[1]], high - EDGE, EDGE) if len(order) > 1 else high / 2
            marks[round(x), round(y)] = state
    drawn = "".join(_mark(x, y, state) for (x, y), state in marks.items())
    told = [f"{dims[i]['name']} {dims[i]['low']}..{dims[i]['high']}" for i in order]
    names = ", ".join(f"{one} {way}" for one, way in zip(told, ("across", "upwards"), strict=False))
    return (
        f'<svg width="{WIDE}" height="{high}" role="img" style="margin:.4em 0"><title>{html.escape(names)}</title>'
        f'<rect x="1" y="1" width="{WIDE - 2}" height="{high - 2}" fill="none" stroke="#8a949c"/>{drawn}</svg>'
        f"<div><small>{_text(names)}</small></div>"
    )


def _along(dim: Mapping[str, Any], size: int, start: float, end: float) -> float:
    low, high = dim["low"], max(dim["high"], dim["low"] + 1)
    share = (size - low) / (high - low)
    if low > 0 and high / low >= FAR:
        share = math.log(max(size, low) / low) / math.log(high / low)
    return float(start + min(max(share, 0.0), 1.0) * (end - start))


def _mark(x: int, y: int, state: int) -> str:
    if state == WRONG:
        return f'<path d="M{x - 4} {y - 4}l8 8m0-8l-8 8" stroke="#d0453b" stroke-width="2"/>'
    return f'<circle cx="{x}" cy="{y}" r="3.5" fill="#2a9a69"/>'
