"""Find the names that statements bind, write into and append to, and those that they share with other code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_COLLECTING_METHODS = ("append", "extend")


def walk_own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield every node below, except those in nested functions, which have their own names."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(node))


def find_bound_names(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names bound by plain assignment, without comprehension variables."""
    hidden = {
        id(name) for node in walk_own(nodes) if isinstance(node, ast.comprehension) for name in ast.walk(node.target)
    }
    names = {
        node.id
        for node in walk_own(nodes)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in hidden
    }
    return sorted(names)


def find_written_names(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names of tensors that `name[...] = v` or `name[...] += v` writes into."""
    names = {
        node.value.id
        for node in walk_own(nodes)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    }
    return sorted(names)


def ends_loop(node: ast.AST) -> bool:
    """Return whether a `break` below ends the loop around this statement, and not a loop inside it."""
    if isinstance(node, ast.Break):
        return True
    if isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.Lambda | ast.ClassDef):
        return False
    return any(ends_loop(child) for child in ast.iter_child_nodes(node))


def find_appended_names(nodes: Iterable[ast.AST]) -> list[str]:
    names = {
        node.func.value.id
        for node in walk_own(nodes)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _COLLECTING_METHODS
        and isinstance(node.func.value, ast.Name)
    }
    return sorted(names)


def find_read_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return every name that is read, also inside nested functions and by `name += v`."""
    names = set()
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                names.add(node.id)
    return names


def find_number_names(function: ast.AST) -> set[str]:
    """Return the names bound to results of `.item()` or `int()`, and to values computed from those."""
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and (_extracts_number(node.value) or find_read_names([node.value]) & names):
            names |= set(find_bound_names(node.targets))
    return names


def _extracts_number(value: ast.expr) -> bool:
    calls = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    return any(
        (isinstance(f, ast.Attribute) and f.attr == "item") or (isinstance(f, ast.Name) and f.id == "int")
        for f in calls
    )


def reads_first(statements: list[ast.stmt], name: str) -> bool | None:
    """Return True if the name may be read before it is bound, False if it is bound first, None if it does not occur."""
    for statement in statements:
        answer = _reads_first(statement, name)
        if answer is not None:
            return answer
    return None


def _reads_first(statement: ast.stmt, name: str) -> bool | None:
    if isinstance(statement, ast.If):
        if name in find_read_names([statement.test]):
            return True
        sides = (reads_first(statement.body, name), reads_first(statement.orelse, name))
        if sides == (False, False):
            return False
        return None if sides == (None, None) else True
    if isinstance(statement, (ast.For, ast.While)):
        head = statement.iter if isinstance(statement, ast.For) else statement.test
        if name in find_read_names([head]):
            return True
        if isinstance(statement, ast.For) and name in find_bound_names([statement.target]):
            return False
        return None if reads_first(statement.body, name) is None else True
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and statement.target.id == name:
        return True
    if name in find_read_names([statement]):
        return True
    return False if name in find_bound_names([statement]) else None


@dataclass(frozen=True)
class LoopNames:
    """The names that a loop carries from step to step, or binds for the code after it."""

    carried: tuple[str, ...]
    """Names that each step takes from the one before."""
    lists: tuple[str, ...]
    """Lists that the loop fills."""
    last: tuple[str, ...]
    """Names bound inside that are read after the loop."""
    written: tuple[str, ...]
    """Carried names of tensors that the loop writes into."""


def find_loop_names(loop: ast.For, function: ast.AST, outer: ast.For | None, before: set[str]) -> LoopNames:
    """Return a loop's names by their role.

    `before` are the names bound when the loop starts. `outer` is the loop around it, if that is rewritten too.
    """
    bound = find_bound_names(loop.body)
    written = [
        name for name in find_written_names(loop.body) if name in before and reads_first(loop.body, name) is not False
    ]
    lists = [name for name in find_appended_names(loop.body) if name not in bound and name in before]
    after = _find_names_read_after(loop, function, outer)
    carried = [
        name for name in bound if name in before and (reads_first(loop.body, name) is not False or name in after)
    ]
    carried += [name for name in written if name not in carried]
    inside = {*bound, *find_bound_names([loop.target])}
    last = [name for name in sorted(inside) if name not in before and name in after]
    return LoopNames(tuple(carried), tuple(lists), tuple(last), tuple(n for n in written if n not in bound))


def _find_names_read_after(loop: ast.For, function: ast.AST, outer: ast.For | None) -> set[str]:
    """Return the names read after a loop.

    Lines are compared, because `function` is the tree as the user wrote it and the loops may be rewritten copies.
    """

    def runs_after(line: int) -> bool:
        if line > (loop.end_lineno or loop.lineno):
            return True
        is_around = outer is not None and outer.lineno <= line <= (outer.end_lineno or outer.lineno)
        return is_around and line < loop.lineno

    return {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and runs_after(node.lineno)
    }
