"""Findings and results as plain, aligned text for a terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.diagnostics.codes import CodeEntry
from fairway.diagnostics.columns import align_columns, fits_terminal, get_text_columns, stack_rows
from fairway.diagnostics.finding import Finding, Where

if TYPE_CHECKING:
    from fairway.convert.result import Result
    from fairway.record.schema import Record
    from fairway.record.schema_parts import RungRecord

_LABEL_COLUMNS = 10
TEXT_INDENT = _LABEL_COLUMNS + 2
_MIN_TABLE_COLUMNS = 80
"""In a narrower terminal a rung is not printed in columns."""
_MAX_CELL_CHARACTERS = 160
"""The longest text of a table cell."""


def render_finding(finding: Finding) -> str:
    """Return one finding as text. Lines without content are left out."""
    lines = [f"{finding.code} {finding.severity}: {finding.title}"]
    lines += format_labeled("seen", finding.seen)
    if finding.where is not None and str(finding.where):
        lines += format_labeled("where", str(_shorten_path(finding.where)))
        if finding.where.source:
            lines += format_labeled("", f"> {finding.where.source}")
    lines += format_labeled("why", finding.why)
    for number, step in enumerate(finding.todo, 1):
        lines += format_labeled("do" if number == 1 else "", f"{number}. {step}")
    for path in finding.artifacts:
        lines += format_labeled("file", path)
    if finding.upstream:
        lines += format_labeled("upstream", ", ".join(finding.upstream))
    elif finding.entry.kind == "upstream":
        lines += format_labeled("upstream", "no known upstream issue")
    return "\n".join(lines)


def _shorten_path(where: Where) -> Where:
    """Return a place whose path is relative if it is below the current folder."""
    if where.file is None:
        return where
    try:
        near = os.path.relpath(where.file)
    except ValueError:
        return where
    shown = near if not near.startswith("..") else where.file
    return Where(shown, where.line, where.function, where.source, where.module, where.node)


def make_printable(text: str) -> str:
    """Replace characters that would move the cursor or color the terminal: names and messages come from files."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def format_labeled(label: str, text: str) -> list[str]:
    """Return a label with its text wrapped beside it."""
    indent = " " * TEXT_INDENT
    columns = get_text_columns() - len(indent)
    lines: list[str] = []
    for part in make_printable(text).split("\n"):
        # Indented lines have a caret under a column, so they are never wrapped.
        wrapped = (
            [part]
            if part.startswith("    ")
            else textwrap.wrap(part, columns, break_long_words=False, break_on_hyphens=False) or [""]
        )
        lines += wrapped
    first = f"  {label:<{_LABEL_COLUMNS}}{lines[0]}"
    return [first, *(indent + line for line in lines[1:])]


def render_result(result: Result) -> str:
    """Return a result as text: verdict, domain, evidence, remedies, ladder, findings."""
    record = result.record
    parts = [_format_headline(result)]
    parts += format_labeled("domain", _format_domain(record))
    parts += _format_evidence(result)
    for number, remedy in enumerate(record.remedies):
        parts += format_labeled("remedies" if number == 0 else "", f"{remedy.name}: {remedy.note}")
    if record.pieces:
        regions = "; ".join(piece.region for piece in record.pieces)
        parts += format_labeled("pieces", f"{len(record.pieces)}: {regions}")
    for number, rung in enumerate(record.ladder):
        parts += format_labeled("ladder" if number == 0 else "", _format_rung(rung))
    shown = [render_finding(f) for f in result.findings]
    return "\n".join(parts) + "".join("\n\n" + text for text in shown)


def _format_headline(result: Result) -> str:
    words: list[str] = [result.verdict]
    if result.path is not None:
        words.append(_relative_path(result.path))
    about = [w for w in (result.route, f"opset {result.record.opset}" if result.record.opset else "") if w]
    return "  ".join(words) + (f"  ({', '.join(about)})" if about else "")


def _relative_path(path: Path) -> str:
    near = os.path.relpath(path)
    return near if not near.startswith("..") else str(path)


def _format_domain(record: Record) -> str:
    shown = [
        f"{name} {dim.low}..{dim.high}"
        + (f" in multiples of {dim.multiple}" if dim.multiple > 1 else "")
        + ("" if dim.declared else " (not declared)")
        for name, dim in record.subject.domain.items()
    ]
    return ", ".join(shown) or "one fixed shape"


def _format_evidence(result: Result) -> list[str]:
    evidence = result.evidence
    if evidence is None:
        return []
    lines = format_labeled("evidence", f"{evidence.samples} ({evidence.level}); {evidence.yardstick}")
    rows = [("output", "of allowed", "file's error", "PyTorch's own")]
    rows += [
        (o.name, "–" if o.ratio is None else f"{o.ratio:.2g}", f"{o.file_error:.2g}", f"{o.own_error:.2g}")
        for o in evidence.outputs
    ]
    for line in align_columns(rows, TEXT_INDENT):
        lines += format_labeled("", line)
    leg = evidence.differential
    if leg.done:
        same = "the same file" if leg.same else f"{len(leg.differences)} differences"
        harm = ", without effect on the results" if leg.harmless else ""
        lines += format_labeled("", f"exported again from another example: {same}{harm}")
    else:
        lines += format_labeled("", f"exported again from another example: {leg.note}")
    lines += format_labeled("", f"sizes: {evidence.sizes}")
    for number, drawn in enumerate(evidence.values):
        lines += format_labeled("values" if number == 0 else "", f"{drawn.name}: {drawn.text}")
    if evidence.second_runtime != "not asked for":
        lines += format_labeled("", f"second runtime: {evidence.second_runtime}")
    if evidence.smallest is not None:
        point = ", ".join(f"{k}={v}" for k, v in evidence.smallest.items())
        edges = "; ".join(evidence.boundaries) or "the example fails too"
        lines += format_labeled("", f"smallest failing shape: {point}; {edges}")
    return lines


def _format_rung(rung: RungRecord) -> str:
    codes = " ".join(dict.fromkeys(finding.code for finding in rung.findings))
    if get_text_columns() < _MIN_TABLE_COLUMNS:
        return f"{rung.route}: {rung.verdict}, {rung.seconds:.1f} s, {rung.peak_mb} MB {codes}".rstrip()
    spent = f"{rung.seconds:6.1f} s {rung.peak_mb:6d} MB"
    return f"{rung.route:<30} {rung.verdict:<9} {spent}  {codes}".rstrip()


def render_page(row: CodeEntry) -> str:
    """Return the page of a code, as `fairway explain` prints it."""
    owners = {
        "input": "your input",
        "model": "the model's code",
        "upstream": "an exporter or library",
        "evidence": "the exported file",
        "limit": "a limit",
        "machine": "this machine",
        "fairway": "Fairway itself",
    }
    lines = [f"{row.code} {row.name} ({row.severity})", f"  {row.title}."]
    lines += format_labeled("whose", owners[row.kind])
    lines += format_labeled("why", row.why)
    for number, step in enumerate(row.todo, 1):
        lines += format_labeled("do" if number == 1 else "", f"{number}. {step}")
    return "\n".join(lines)


def format_markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows, headings first, as a Markdown table, or stacked if the terminal is too narrow."""
    head, *body = [[_format_cell(text) for text in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in (head, *body)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]] if fits_terminal(lines) else stack_rows((head, *body))


def _format_cell(text: str) -> str:
    """Return a text as one short line that cannot end its cell or the table."""
    flat = " ".join(make_printable(text).split())
    short = flat if len(flat) <= _MAX_CELL_CHARACTERS else flat[: _MAX_CELL_CHARACTERS - 1] + "…"
    return short.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
