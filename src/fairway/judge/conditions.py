"""Find the condition in a file's source that belongs to a jump in its bytecode."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
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
            case ast.Match():
                conditions += _list_patterns(node)
            case ast.BoolOp():
                conditions.append(
                    ConditionSource("and", node.lineno, ast.unparse(node), get_span(node), get_span(node), test=node)
                )
    return conditions


def _list_patterns(node: ast.Match) -> Iterator[ConditionSource]:
    """Yield the comparisons and the guards of a `match`."""
    for case in node.cases:
        for pattern, subject in _list_compared(case.pattern, node.subject):
            value = pattern.value if isinstance(pattern, ast.MatchValue) else ast.Constant(pattern.value)
            test = ast.fix_missing_locations(ast.copy_location(ast.Compare(subject, [ast.Eq()], [value]), pattern))
            place = get_span(pattern)
            yield ConditionSource("if", pattern.lineno, ast.unparse(test), place, place, True, test)
        if case.guard is not None:
            place = get_span(case.guard)
            yield ConditionSource("if", case.guard.lineno, ast.unparse(case.guard), place, place, False, case.guard)


def _list_compared(
    pattern: ast.pattern, subject: ast.expr
) -> Iterator[tuple[ast.MatchValue | ast.MatchSingleton, ast.expr]]:
    """Yield the plain values of a pattern, each with the expression that is compared with it."""
    match pattern:
        case ast.MatchValue() | ast.MatchSingleton():
            yield pattern, subject
        case ast.MatchOr(patterns):
            for part in patterns:
                yield from _list_compared(part, subject)
        case ast.MatchAs(pattern=ast.pattern() as inner):
            yield from _list_compared(inner, subject)
        case ast.MatchSequence(patterns) if not any(isinstance(part, ast.MatchStar) for part in patterns):
            for number, part in enumerate(patterns):
                item: ast.expr = ast.Subscript(subject, ast.Constant(number), ast.Load())
                if isinstance(subject, ast.Tuple) and len(subject.elts) == len(patterns):
                    item = subject.elts[number]
                yield from _list_compared(part, item)


def _find_raising_answers(node: ast.If | ast.IfExp | ast.While) -> frozenset[bool]:
    """Return the outcomes of an `if`, True or False, that lead only to a `raise`."""
    if not isinstance(node, ast.If):
        return frozenset()
    arms = {True: node.body, False: node.orelse}
    return frozenset(answer for answer, body in arms.items() if _is_only_raising(body))


def _is_only_raising(body: Sequence[ast.stmt]) -> bool:
    """Return whether the statements end in a raise and contain no return."""
    return bool(body) and isinstance(body[-1], ast.Raise) and not any(isinstance(s, ast.Return) for s in body)


def find_outcomes(test: ast.expr, part: ast.expr, answer: bool) -> frozenset[bool]:
    """Return the answers that a condition can have once one of its parts was asked and had this answer.

    Parts are asked from left to right: what stands to the left of the part has not decided the condition.
    """
    if test is part:
        return frozenset({answer})
    if _is_chain_of(test, part):
        return frozenset({True, False}) if answer else frozenset({False})
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return frozenset(not outcome for outcome in find_outcomes(test.operand, part, answer))
    if isinstance(test, ast.BoolOp):
        deciding = isinstance(test.op, ast.Or)
        for number, value in enumerate(test.values):
            if any(node is part or _is_chain_of(node, part) for node in ast.walk(value)):
                own = find_outcomes(value, part, answer)
                is_last = number == len(test.values) - 1
                return own if is_last or own == {deciding} else frozenset({True, False})
    return frozenset({True, False})


def _is_chain_of(node: ast.AST, pair: ast.expr) -> bool:
    """Return whether this is the chain `0 < x < 1` of a pair that was made with its place."""
    return isinstance(node, ast.Compare) and len(node.ops) > 1 and get_span(node) == get_span(pair)


def get_span(node: ast.expr | ast.stmt | ast.pattern) -> Span:
    return node.lineno, node.end_lineno or node.lineno, node.col_offset, node.end_col_offset or 0


def _is_within(inner: Span, outer: Span) -> bool:
    return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


def locate_condition(site: TraceSite, header: ConditionSource) -> Where:
    file = site.code.co_filename
    source = linecache.getline(file, header.line).strip() or None
    return Where(file=file, line=header.line, function=site.code.co_qualname, source=source)


@cache
def _list_expressions(file: str) -> dict[Span, ast.expr]:
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    return {get_span(node): node for node in ast.walk(tree) if isinstance(node, ast.expr)}


def find_expression(file: str, span: Span) -> ast.expr | None:
    """Return the expression at a place in a file."""
    return _list_expressions(file).get(span)
