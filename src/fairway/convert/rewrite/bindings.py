"""Which names a block of statements binds, writes into, appends to, and needs from before or leaves for after."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_COLLECT = ("append", "extend")


def walk_own(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every node below, without looking into nested functions, whose names are their own."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(node))


def bound_names(nodes: Iterable[ast.AST]) -> list[str]:
    """Names that plain assignment binds; comprehension variables are not among them."""
    hidden = {
        id(name) for node in walk_own(nodes) if isinstance(node, ast.comprehension) for name in ast.walk(node.target)
    }
    found = [
        node.id
        for node in walk_own(nodes)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in hidden
    ]
    return sorted(dict.fromkeys(found))


def written_names(nodes: Iterable[ast.AST]) -> list[str]:
    """Names of tensors that `name[...] = v` or `name[...] += v` writes into."""
    found = [
        base.id
        for node in walk_own(nodes)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        for base in [node.value]
        if isinstance(base, ast.Name)
    ]
    return sorted(dict.fromkeys(found))


def ends_loop(node: ast.AST) -> bool:
    """Whether a `break` below ends the loop around this statement, and not one inside it."""
    if isinstance(node, ast.Break):
        return True
    if isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.Lambda | ast.ClassDef):
        return False
    return any(ends_loop(child) for child in ast.iter_child_nodes(node))


def appended_names(nodes: Iterable[ast.AST]) -> list[str]:
    found = [
        node.func.value.id
        for node in walk_own(nodes)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _COLLECT
        and isinstance(node.func.value, ast.Name)
    ]
    return sorted(dict.fromkeys(found))


def read_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Every name read, also inside nested functions, also by `name += v`."""
    found = set()
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
    return found


def numbers_taken_out(function: ast.AST) -> set[str]:
    """Names bound to what `.item()` or `int()` gives, and to what is computed from those."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and (_takes_out(node.value) or read_names([node.value]) & found):
            found |= set(bound_names(node.targets))
    return found


def _takes_out(value: ast.expr) -> bool:
    calls = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    return any(
        (isinstance(f, ast.Attribute) and f.attr == "item") or (isinstance(f, ast.Name) and f.id == "int")
        for f in calls
    )


def reads_first(statements: list[ast.stmt], name: str) -> bool | None:
    """True if the name may be read before it is bound, False if it is surely bound first, None if neither happens."""
    for statement in statements:
        answer = _reads_first(statement, name)
        if answer is not None:
            return answer
    return None


def _reads_first(statement: ast.stmt, name: str) -> bool | None:
    if isinstance(statement, ast.If):
        if name in read_names([statement.test]):
            return True
        sides = (reads_first(statement.body, name), reads_first(statement.orelse, name))
        if sides == (False, False):
            return False
        return None if sides == (None, None) else True
    if isinstance(statement, (ast.For, ast.While)):
        head = statement.iter if isinstance(statement, ast.For) else statement.test
        if name in read_names([head]):
            return True
        if isinstance(statement, ast.For) and name in bound_names([statement.target]):
            return False
        return None if reads_first(statement.body, name) is None else True
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and statement.target.id == name:
        return True
    if name in read_names([statement]):
        return True
    return False if name in bound_names([statement]) else None


@dataclass(frozen=True)
class LoopNames:
    """How the names of a loop cross its border."""

    carried: tuple[str, ...]
    lists: tuple[str, ...]
    last: tuple[str, ...]
    written: tuple[str, ...]


def loop_names(loop: ast.For, function: ast.AST, outer: ast.For | None, before: set[str]) -> LoopNames:
    """`before` are the names bound when the loop starts; `outer` is the loop around it, if it is rewritten too."""
    bound = bound_names(loop.body)
    written = [
        name for name in written_names(loop.body) if name in before and reads_first(loop.body, name) is not False
    ]
    lists = [name for name in appended_names(loop.body) if name not in bound and name in before]
    after = _read_after(loop, function, outer)
    carried = [
        name for name in bound if name in before and (reads_first(loop.body, name) is not False or name in after)
    ]
    carried += [name for name in written if name not in carried]
    inside = {*bound, *bound_names([loop.target])}
    last = [name for name in sorted(inside) if name not in before and name in after]
    return LoopNames(tuple(carried), tuple(lists), tuple(last), tuple(n for n in written if n not in bound))


def _read_after(loop: ast.For, function: ast.AST, outer: ast.For | None) -> set[str]:
    """By position, as `function` is the tree as the user wrote it and the loops may be rewritten copies already."""

    def after(line: int) -> bool:
        if line > (loop.end_lineno or loop.lineno):
            return True
        around = outer is not None and outer.lineno <= line <= (outer.end_lineno or outer.lineno)
        return around and line < loop.lineno

    return {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and after(node.lineno)
    }
