"""Find the condition in a file's source that belongs to a jump in its bytecode."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fairway.diagnostics import Where
from fairway.judge.branch_trace import Span, TraceSite, find_site_span


@dataclass(frozen=True)
class ConditionSource:
    """The source that decides at a site: a branch, a `for`, a `while` or a list, with its line and text."""

    kind: str
    line: int
    text: str
    question: Span = (0, 0, 0, 0)
    """The span of the condition."""
    statement: Span = (0, 0, 0, 0)
    """The span of the statement or expression around it. Python gives this place to a condition that is only a name."""
    is_single: bool = False
    """True if the condition is one comparison or name, so that the jump's answer is that of the entire condition."""
    test: ast.expr | None = None
    """The condition itself."""
    raises: frozenset[bool] = frozenset()
    """The answers after which the statement only raises. Such inputs are illegal, and no file needs to handle them."""


def find_condition(site: TraceSite) -> ConditionSource | None:
    """Return the condition at a site, or None for jumps without one, such as those of `try` and `with`."""
    file, span = site.code.co_filename, find_site_span(site)
    if site.kind == "list":
        return ConditionSource("list", span[0], "")
    candidates = [
        condition
        for condition in _list_conditions(file)
        if span == condition.statement or _is_within(span, condition.question)
    ]
    return min(
        candidates,
        default=None,
        key=lambda condition: (
            condition.kind == "and",
            condition.question[1] - condition.question[0],
            condition.question[3],
        ),
    )


@cache
def _list_conditions(file: str) -> list[ConditionSource]:
    """Return the expressions of a file that decide its flow."""
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
    conditions: list[ConditionSource] = []
    for node in ast.walk(tree):
        match node:
            case ast.If() | ast.IfExp() | ast.While():
                test, loop = node.test, isinstance(node, ast.While)
                kind, words = ("while", "while ") if loop else ("if", "")
                single = not isinstance(test, ast.BoolOp | ast.UnaryOp)
                text = f"{words}{ast.unparse(test)}"
                places = get_span(test), get_span(node)
                conditions.append(
                    ConditionSource(kind, node.lineno, text, *places, single, test, _find_raising_answers(node))
                )
            case ast.Assert(test):
                text = f"assert {ast.unparse(test)}"
                raises = frozenset({False})
                conditions.append(
                    ConditionSource("assert", node.lineno, text, get_span(test), get_span(node), True, test, raises)
                )
            case ast.For():
                words = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
                conditions.append(ConditionSource("for", node.lineno, words, get_span(node.iter), get_span(node)))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for generator in node.generators:
                    words = f"for {ast.unparse(generator.target)} in {ast.unparse(generator.iter)}"
                    conditions.append(
                        ConditionSource("for", generator.target.lineno, words, get_span(generator.iter), get_span(node))
                    )
                    for test in generator.ifs:
                        place = get_span(test)
                        conditions.append(
                            ConditionSource("if", test.lineno, ast.unparse(test), place, place, True, test)
                        )
            case ast.BoolOp():
                conditions.append(
                    ConditionSource("and", node.lineno, ast.unparse(node), get_span(node), get_span(node), test=node)
                )
    return conditions


def _find_raising_answers(node: ast.If | ast.IfExp | ast.While) -> frozenset[bool]:
    """Return the outcomes of an `if`, True or False, that lead only to a `raise`."""
    if not isinstance(node, ast.If):
        return frozenset()
    arms = {True: node.body, False: node.orelse}
    return frozenset(answer for answer, body in arms.items() if _is_only_raising(body))


def _is_only_raising(body: Sequence[ast.stmt]) -> bool:
    """Return whether the statements end in a raise and contain no return."""
    return bool(body) and isinstance(body[-1], ast.Raise) and not any(isinstance(s, ast.Return) for s in body)


def get_span(node: ast.expr | ast.stmt) -> Span:
    return node.lineno, node.end_lineno or node.lineno, node.col_offset, node.end_col_offset or 0


def _is_within(inner: Span, outer: Span) -> bool:
    return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


def locate_condition(site: TraceSite, header: ConditionSource) -> Where:
    file = site.code.co_filename
    source = linecache.getline(file, header.line).strip() or None
    return Where(file=file, line=header.line, function=site.code.co_qualname, source=source)
