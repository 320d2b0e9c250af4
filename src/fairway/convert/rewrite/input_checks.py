"""Checks of the inputs: an `assert`, or an `if` that does nothing but raise. Legal inputs take one side of them."""

from __future__ import annotations

import ast
import linecache
from functools import cache


def is_input_check(file: str, line: int) -> bool:
    """Return whether the line of a file decides a check of the inputs."""
    nodes = [node for node in _find_tests(file) if node.test.lineno <= line <= (node.test.end_lineno or line)]
    return any(isinstance(node, ast.Assert) or only_refuses(node) for node in nodes)


def only_refuses(node: ast.AST) -> bool:
    """Return whether this is an `if` with a side that only raises, so that legal inputs never take it."""
    return isinstance(node, ast.If) and not node.orelse and all(isinstance(s, ast.Raise | ast.Pass) for s in node.body)


@cache
def _find_tests(file: str) -> tuple[ast.Assert | ast.If, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Assert | ast.If))
