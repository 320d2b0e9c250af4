"""Findings and results as text for a terminal: plain, aligned, no colour of its own."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.diagnostics.codes import Code
from fairway.diagnostics.columns import aligned, fit, room, stacked
from fairway.diagnostics.finding import Finding, Where

if TYPE_CHECKING:
    from fairway.convert.result import Result

_LABEL = 10
INDENT = _LABEL + 2
_NARROW = 80
"""Columns below which a rung has no room for a table of its own."""
_LONGEST = 160
"""Characters of a cell."""


def render_finding(finding: Finding) -> str:
    """One finding with everything STYLE asks for; lines that have nothing to say are left out."""
    lines = [f"{finding.code} {finding.severity}: {finding.title}"]
    lines += labelled("seen", finding.seen)
    if finding.where is not None and str(finding.where):
        lines += labelled("where", str(_near(finding.where)))
        if finding.where.source:
            lines += labelled("", f"> {finding.where.source}")
    lines += labelled("why", finding.why)
    for number, step in enumerate(finding.todo, 1):
        lines += labelled("do" if number == 1 else "", f"{number}. {step}")
    for path in finding.artefacts:
        lines += labelled("file", path)
    if finding.upstream:
        lines += labelled("upstream", ", ".join(finding.upstream))
    elif finding.entry.kind == "upstream":
        lines += labelled("upstream", "no known upstream issue")
    return "\n".join(lines)


def _near(where: Where) -> Where:
    """Paths below the current folder are shown as the user would type them."""
    if where.file is None:
        return where
    try:
        near = os.path.relpath(where.file)
    except ValueError:
        return where
    shown = near if not near.startswith("..") else where.file
    return Where(shown, where.line, where.function, where.source, where.module, where.node)


def printable(text: str) -> str:
    """Names and messages come from files: what would move the cursor or colour the terminal is shown as a mark."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def labelled(label: str, text: str) -> list[str]:
    """A label and its text, wrapped beside it."""
    indent = " " * INDENT
    wide = room() - len(indent)
    lines: list[str] = []
    for part in printable(text).split("\n"):
        # A caret stands under a column: such lines are never wrapped.
        wrapped = (
            [part]
            if part.startswith("    ")
            else textwrap.wrap(part, wide, break_long_words=False, break_on_hyphens=False) or [""]
        )
        lines += wrapped
    first = f"  {label:<{_LABEL}}{lines[0]}"
    return [first, *(indent + line for line in lines[1:])]


def render_result(result: Result) -> str:
    """Verdict, domain, evidence, remedies, ladder, findings; in that order, because that is the order of questions."""
    record = result.record
    parts = [_headline(result)]
    parts += labelled("domain", _domain(record))
    parts += _evidence(result)
    for remedy in record.get("remedies", []):
        first = remedy is record["remedies"][0]
        parts += labelled("remedies" if first else "", f"{remedy['name']}: {remedy['note']}")
    pieces = record.get("pieces", [])
    if pieces:
        parts += labelled("pieces", f"{len(pieces)}: " + "; ".join(piece["region"] for piece in pieces))
    ladder = record.get("ladder", [])
    for number, rung in enumerate(ladder):
        parts += labelled("ladder" if number == 0 else "", _rung(rung))
    shown = [render_finding(f) for f in result.findings]
    return "\n".join(parts) + "".join("\n\n" + text for text in shown)


def _headline(result: Result) -> str:
    words: list[str] = [result.verdict]
    if result.path is not None:
        words.append(_relative(result.path))
    about = [w for w in (result.route, f"opset {result.record['opset']}" if result.record.get("opset") else "") if w]
    return "  ".join(words) + (f"  ({', '.join(about)})" if about else "")


def _relative(path: Path) -> str:
    near = os.path.relpath(path)
    return near if not near.startswith("..") else str(path)


def _domain(record: dict[str, Any]) -> str:
    dims = record["subject"]["domain"]
    shown = [
        f"{name} {d['low']}..{d['high']}"
        + (f" in multiples of {d['multiple']}" if d["multiple"] > 1 else "")
        + ("" if d["declared"] else " (not declared)")
        for name, d in dims.items()
    ]
    return ", ".join(shown) or "one fixed shape"


def _evidence(result: Result) -> list[str]:
    evidence = result.evidence
    if evidence is None:
        return []
    lines = labelled("evidence", f"{evidence.samples} ({evidence.level}); {evidence.yardstick}")
    rows = [("output", "of allowed", "file's error", "PyTorch's own")]
    rows += [
        (o.name, "–" if o.ratio is None else f"{o.ratio:.2g}", f"{o.file_error:.2g}", f"{o.own_error:.2g}")
        for o in evidence.outputs
    ]
    for line in aligned(rows, INDENT):
        lines += labelled("", line)
    leg = evidence.differential
    if leg.done:
        same = "the same file" if leg.same else f"{len(leg.differences)} differences"
        harm = ", without effect on the results" if leg.harmless else ""
        lines += labelled("", f"exported again from another example: {same}{harm}")
    else:
        lines += labelled("", f"exported again from another example: {leg.note}")
    lines += labelled("", f"sizes: {evidence.sizes}")
    for number, drawn in enumerate(evidence.values):
        lines += labelled("values" if number == 0 else "", f"{drawn.name}: {drawn.text}")
    if evidence.second_runtime != "not asked for":
        lines += labelled("", f"second runtime: {evidence.second_runtime}")
    if evidence.smallest is not None:
        point = ", ".join(f"{k}={v}" for k, v in evidence.smallest.items())
        edges = "; ".join(evidence.boundaries) or "the example fails too"
        lines += labelled("", f"smallest failing shape: {point}; {edges}")
    return lines


def _rung(rung: dict[str, Any]) -> str:
    codes = " ".join(dict.fromkeys(f["code"] for f in rung["findings"]))
    if room() < _NARROW:
        return f"{rung['route']}: {rung['verdict']}, {rung['seconds']:.1f} s, {rung['peak_mb']} MB {codes}".rstrip()
    spent = f"{rung['seconds']:6.1f} s {rung['peak_mb']:6d} MB"
    return f"{rung['route']:<30} {rung['verdict']:<9} {spent}  {codes}".rstrip()


def render_page(row: Code) -> str:
    """The page of one code, as `fairway explain` prints it."""
    whose = {
        "input": "your input",
        "model": "the model's code",
        "upstream": "an exporter or library",
        "evidence": "the exported file",
        "limit": "a limit",
        "machine": "this machine",
        "fairway": "Fairway itself",
    }
    lines = [f"{row.code} {row.name} ({row.severity})", f"  {row.title}."]
    lines += labelled("whose", whose[row.kind])
    lines += labelled("why", row.why)
    for number, step in enumerate(row.todo, 1):
        lines += labelled("do" if number == 1 else "", f"{number}. {step}")
    return "\n".join(lines)


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows, the first of them the heads, as a table that a README can take; stacked where a terminal is too narrow."""
    head, *body = [[_cell(text) for text in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in (head, *body)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]] if fit(lines) else stacked((head, *body))


def _cell(text: str) -> str:
    """One line, no longer than is good to read, that cannot end its cell or the table."""
    flat = " ".join(printable(text).split())
    short = flat if len(flat) <= _LONGEST else flat[: _LONGEST - 1] + "…"
    return short.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
