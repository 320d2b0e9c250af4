"""Write the call of a small function as one expression, if the function only assigns, decides and returns."""

from __future__ import annotations

import ast
import copy
from typing import TypeVar

from fairway.convert.rewrite.call_graph import FunctionNode

_WITHIN = "_fairway_within"
Part = TypeVar("Part", bound=ast.AST)


def inline_call(function: FunctionNode, call: ast.Call, skip: int = 0) -> ast.expr | None:
    """Return the call's value as an expression of its arguments, or None. The first `skip` parameters (self) stay."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][skip:]
    given: dict[str, ast.expr] = dict(zip(parameters, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    defaults = function.args.defaults
    given = {**dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=False)), **given}
    if set(given) != set(parameters) or function.args.vararg or function.args.kwarg or function.args.kwonlyargs:
        return None
    within = (*_get_inlined(call), id(function))
    if isinstance(function, ast.Lambda):
        return _substitute(_mark_calls(function.body, within), given)
    return _inline_block([_mark_calls(statement, within) for statement in function.body], given)


def _mark_calls(part: Part, within: tuple[int, ...]) -> Part:
    """Return a copy whose calls have a note of the functions out of which they were taken.

    The note has their ids, because a node in it would be copied with each copy of the call.
    """
    part = copy.deepcopy(part)
    for inner in ast.walk(part):
        if isinstance(inner, ast.Call):
            setattr(inner, _WITHIN, within)
    return part


def is_taken_from(call: ast.Call, function: FunctionNode) -> bool:
    """Return whether a call was taken out of this function's body, itself or through another function."""
    return id(function) in _get_inlined(call)


def _get_inlined(call: ast.Call) -> tuple[int, ...]:
    within: tuple[int, ...] = getattr(call, _WITHIN, ())
    return within


def _inline_block(statements: list[ast.stmt], names: dict[str, ast.expr]) -> ast.expr | None:
    for place, statement in enumerate(statements):
        rest = statements[place + 1 :]
        if isinstance(statement, ast.Return):
            return None if statement.value is None else _substitute(statement.value, names)
        if isinstance(statement, ast.If):
            yes, no = _inline_block([*statement.body, *rest], names), _inline_block([*statement.orelse, *rest], names)
            if yes is None or no is None:
                return None
            return ast.IfExp(_substitute(statement.test, names), yes, no)
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        ):
            names = {**names, statement.targets[0].id: _substitute(statement.value, names)}
        elif not isinstance(statement, ast.Pass) and not _is_docstring(statement):
            return None
    return None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _substitute(node: ast.expr, names: dict[str, ast.expr]) -> ast.expr:
    class Substitute(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return copy.deepcopy(names.get(name.id, name))

    new: ast.expr = Substitute().visit(copy.deepcopy(node))
    return new
