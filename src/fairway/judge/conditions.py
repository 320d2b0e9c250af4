"""The expressions in a file's source that decide where its flow goes, and which of them belongs to a jump that ran."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fairway.diagnostics import Where
from fairway.judge.branch_trace import Span, TraceSite, position


@dataclass(frozen=True)
class ConditionSource:
    """What decides at a site: a branch, a `for`, a `while` or a list, its line, and its words."""

    kind: str
    line: int
    text: str
    asked: Span = (0, 0, 0, 0)
    """Where the question stands."""
    around: Span = (0, 0, 0, 0)
    """The statement or expression that asks it, which Python takes for the place of a question that is but a name."""
    single: bool = False
    """Whether the question is one comparison or name, so that the jump's answer is that of the whole."""
    test: ast.expr | None = None
    """The condition itself."""
    raises: frozenset[bool] = frozenset()
    """The answers after which the statement only raises: such inputs are illegal, and no file needs to handle them."""


def header_of(site: TraceSite) -> ConditionSource | None:
    """None for jumps that are no question of the model's, such as those of `try` and `with`."""
    file, span = site.code.co_filename, position(site)
    if site.kind == "list":
        return ConditionSource("list", span[0], "")
    near = [one for one in _deciding(file) if span == one.around or _within(span, one.asked)]
    return min(near, default=None, key=lambda one: (one.kind == "and", one.asked[1] - one.asked[0], one.asked[3]))


@cache
def _deciding(file: str) -> list[ConditionSource]:
    """The expressions of a file on which its flow hangs."""
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
    found: list[ConditionSource] = []
    for node in ast.walk(tree):
        match node:
            case ast.If() | ast.IfExp() | ast.While():
                test, loop = node.test, isinstance(node, ast.While)
                kind, words = ("while", "while ") if loop else ("if", "")
                single = not isinstance(test, ast.BoolOp | ast.UnaryOp)
                text = f"{words}{ast.unparse(test)}"
                places = span_of(test), span_of(node)
                found.append(ConditionSource(kind, node.lineno, text, *places, single, test, _raising(node)))
            case ast.Assert(test):
                text = f"assert {ast.unparse(test)}"
                raises = frozenset({False})
                found.append(
                    ConditionSource("assert", node.lineno, text, span_of(test), span_of(node), True, test, raises)
                )
            case ast.For():
                words = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
                found.append(ConditionSource("for", node.lineno, words, span_of(node.iter), span_of(node)))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for one in node.generators:
                    words = f"for {ast.unparse(one.target)} in {ast.unparse(one.iter)}"
                    found.append(ConditionSource("for", one.target.lineno, words, span_of(one.iter), span_of(node)))
                    for test in one.ifs:
                        place = span_of(test)
                        found.append(ConditionSource("if", test.lineno, ast.unparse(test), place, place, True, test))
            case ast.BoolOp():
                found.append(
                    ConditionSource("and", node.lineno, ast.unparse(node), span_of(node), span_of(node), test=node)
                )
    return found


def _raising(node: ast.If | ast.IfExp | ast.While) -> frozenset[bool]:
    """Return the answers after which an `if` only raises."""
    if not isinstance(node, ast.If):
        return frozenset()
    arms = {True: node.body, False: node.orelse}
    return frozenset(answer for answer, body in arms.items() if _only_raises(body))


def _only_raises(body: Sequence[ast.stmt]) -> bool:
    """Whether the statements end in a raise and do nothing else that lasts."""
    return bool(body) and isinstance(body[-1], ast.Raise) and not any(isinstance(s, ast.Return) for s in body)


def span_of(node: ast.expr | ast.stmt) -> Span:
    return node.lineno, node.end_lineno or node.lineno, node.col_offset, node.end_col_offset or 0


def _within(inner: Span, outer: Span) -> bool:
    return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


def place_of(site: TraceSite, header: ConditionSource) -> Where:
    file = site.code.co_filename
    source = linecache.getline(file, header.line).strip() or None
    return Where(file=file, line=header.line, function=site.code.co_qualname, source=source)
