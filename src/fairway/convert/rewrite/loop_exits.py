"""Simplify loops that end on a value, or fill a list whose length depends on values.

`return` inside becomes a `break` and a value that is returned after the loop. `x = torch.cat([x, part])` becomes a list
of parts that are joined after the loop. `items.append(value)` becomes `items = push(items, value)` where the number of
items depends on a value, so that the list is carried from step to step like any other name.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from fairway.convert.rewrite.bindings import ends_loop, find_appended_names, find_bound_names, find_read_names, walk_own
from fairway.convert.rewrite.call_graph import MISSING, look_up, split_attributes
from fairway.convert.rewrite.expressions import call_runtime

Loop = ast.For | ast.While
LoopNode: TypeAlias = Any
"""A `Loop`. An `ast.NodeTransformer` returns it as any kind of node."""


@dataclass(frozen=True)
class Exits:
    """A simplified loop, the statements before and after it, and the name of the flag that is set if it returned."""

    loop: LoopNode
    before: list[ast.stmt]
    after: list[ast.stmt]
    returned: str | None


def simplify_exits(loop: LoopNode, scope: dict[str, object]) -> Exits:
    """Return the loop without returns and growing tensors. `scope` holds the function's globals."""
    loop = copy.deepcopy(loop)
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    returned = None
    if any(isinstance(node, ast.Return) for node in walk_own(loop.body)):
        returned = f"_returned_{loop.lineno}"
        result = f"_result_{loop.lineno}"
        loop.body = _replace_returns(loop.body, returned, result)
        before += _parse_statements(f"{returned} = False\n{result} = _fw.UNBOUND", loop)
    for name, dim in _find_grown_tensors(loop, scope).items():
        parts = f"_parts_{name}_{loop.lineno}"
        loop = _CollectParts(name, parts, scope).visit(loop)
        before += _parse_statements(f"{parts} = []", loop)
        after += _parse_statements(f"{name} = _fw.join({name}, {parts}, {dim})", loop)
    return Exits(ast.fix_missing_locations(loop), before, after, returned)


def push_items(loop: LoopNode, names: list[str]) -> LoopNode:
    """Return the loop with `name.append(value)` written as `name = push(name, value)`."""
    pushes = dict.fromkeys(names, 0)
    for node in walk_own(loop.body):
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and _read_append(call) in pushes:
            pushes[str(_read_append(call))] += 1
    return ast.fix_missing_locations(_Push(pushes).visit(copy.deepcopy(loop)))


def find_lists_by_value(loop: LoopNode, before: set[str]) -> list[str]:
    """Return the lists whose length depends on values: a condition on a value decides whether the loop appends."""
    early = any(map(ends_loop, loop.body))
    names = set(find_appended_names(loop.body)) & before - set(find_bound_names(loop.body))
    by_value = set(names) if early else set()
    for node in walk_own(loop.body):
        conditional = isinstance(node, ast.If)
        ends = isinstance(node, ast.For | ast.While) and any(map(ends_loop, node.body))
        if conditional or ends or isinstance(node, ast.While):
            by_value |= names & set(find_appended_names([node]))
    return sorted(by_value)


def _read_append(call: ast.Call) -> str | None:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "append" and isinstance(function.value, ast.Name):
        return function.value.id if len(call.args) == 1 and not call.keywords else None
    return None


class _Push(ast.NodeTransformer):
    def __init__(self, pushes: dict[str, int]) -> None:
        self._pushes = pushes

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        name = _read_append(node.value) if isinstance(node.value, ast.Call) else None
        if name not in self._pushes:
            return node
        assert isinstance(node.value, ast.Call)
        call = call_runtime("push", ast.Name(name, ast.Load()), node.value.args[0], ast.Constant(self._pushes[name]))
        return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], call), node)


def _parse_statements(text: str, like: ast.AST) -> list[ast.stmt]:
    made = ast.parse(text).body
    for statement in made:
        for node in ast.walk(statement):
            ast.copy_location(node, like)
    return made


def _replace_returns(statements: list[ast.stmt], returned: str, result: str) -> list[ast.stmt]:
    done: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.Return):
            value = ast.Assign([ast.Name(result, ast.Store())], statement.value or ast.Constant(None))
            made = [value, *_parse_statements(f"{returned} = True", statement), ast.Break()]
            return [*done, *(ast.copy_location(node, statement) for node in made)]
        if isinstance(statement, ast.If):
            statement.body = _replace_returns(statement.body, returned, result)
            statement.orelse = _replace_returns(statement.orelse, returned, result)
        elif isinstance(statement, ast.With):
            statement.body = _replace_returns(statement.body, returned, result)
        done.append(statement)
    return done


def _find_grown_tensors(loop: LoopNode, scope: dict[str, object]) -> dict[str, int]:
    """Return the names that the loop only makes longer, and along which dim."""
    dims: dict[str, int] = {}
    for node in walk_own(loop.body):
        growth = _read_growth(node, scope)
        if growth is None:
            continue
        name, _, dim = growth
        uses = [n for n in walk_own(loop.body) if isinstance(n, ast.Name) and n.id == name]
        if len(uses) == 2:  # here alone
            dims[name] = dim
    return dims


def _read_growth(node: ast.AST, scope: dict[str, object]) -> tuple[str, ast.expr, int] | None:
    """Return name, part and dim of `name = torch.cat([name, part], dim=number)`, or None for another statement."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
        return None
    call = node.value
    if not (isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.List | ast.Tuple)):
        return None
    chain = split_attributes(call.func)
    function = MISSING if chain is None else look_up(chain, scope)
    if function not in (torch.cat, torch.concat):
        return None
    parts = call.args[0].elts
    given = [*call.args[1:], *(word.value for word in call.keywords if word.arg in ("dim", "axis"))]
    try:
        dim = ast.literal_eval(given[0]) if given else 0
    except ValueError:
        return None
    name = node.targets[0].id
    if (
        len(parts) != 2
        or not isinstance(parts[0], ast.Name)
        or parts[0].id != name
        or name in find_read_names([parts[1]])
    ):
        return None
    return name, parts[1], dim


class _CollectParts(ast.NodeTransformer):
    def __init__(self, name: str, parts: str, scope: dict[str, object]) -> None:
        self._name, self._parts, self._scope = name, parts, scope

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        growth = _read_growth(node, self._scope)
        if growth is None or growth[0] != self._name:
            return node
        append = ast.Attribute(ast.Name(self._parts, ast.Load()), "append", ast.Load())
        return ast.copy_location(ast.Expr(ast.Call(append, [growth[1]], [])), node)


def make_endless(node: ast.While) -> ast.For:
    """Return `while c: …` as an endless `for` that begins with `if not c: break`."""
    leave = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.Break()], [])
    forever = call_runtime("forever")
    made = ast.For(ast.Name("_", ast.Store()), forever, [leave, *node.body], node.orelse)
    return ast.fix_missing_locations(ast.copy_location(made, node))


def replace_break(statements: list[ast.stmt], flag: str) -> list[ast.stmt]:
    """Write `if c: break` and the statements after it as `if c: flag = True; else: …`."""
    for place, statement in enumerate(statements):
        if isinstance(statement, ast.Break):
            ended = ast.Assign([ast.Name(flag, ast.Store())], ast.Constant(True))
            return [*statements[:place], ast.copy_location(ended, statement)]
        if isinstance(statement, ast.If) and ends_loop(statement):
            rest = statements[place + 1 :]
            statement.body = replace_break([*statement.body, *copy.deepcopy(rest)], flag)
            statement.orelse = replace_break([*statement.orelse, *copy.deepcopy(rest)], flag)
            return [*statements[:place], statement]
    return statements
