"""A small function can stand where it is called, as one expression, if it only assigns, decides and returns."""

from __future__ import annotations

import ast
import copy

from fairway.convert.rewrite.call_graph import FunctionNode


def as_expression(function: FunctionNode, call: ast.Call, skip: int = 0) -> ast.expr | None:
    """The call's value as an expression over its arguments, or None. `skip` parameters (self) are left as they are."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][skip:]
    given: dict[str, ast.expr] = dict(zip(parameters, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    defaults = function.args.defaults
    given = {**dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=False)), **given}
    if set(given) != set(parameters) or function.args.vararg or function.args.kwarg or function.args.kwonlyargs:
        return None
    if isinstance(function, ast.Lambda):
        return _substituted(function.body, given)
    return _value(function.body, given)


def _value(statements: list[ast.stmt], names: dict[str, ast.expr]) -> ast.expr | None:
    for place, statement in enumerate(statements):
        rest = statements[place + 1 :]
        if isinstance(statement, ast.Return):
            return None if statement.value is None else _substituted(statement.value, names)
        if isinstance(statement, ast.If):
            yes, no = _value([*statement.body, *rest], names), _value([*statement.orelse, *rest], names)
            if yes is None or no is None:
                return None
            return ast.IfExp(_substituted(statement.test, names), yes, no)
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        ):
            names = {**names, statement.targets[0].id: _substituted(statement.value, names)}
        elif not isinstance(statement, ast.Pass) and not _is_docstring(statement):
            return None
    return None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _substituted(node: ast.expr, names: dict[str, ast.expr]) -> ast.expr:
    class Substitute(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return copy.deepcopy(names.get(name.id, name))

    new: ast.expr = Substitute().visit(copy.deepcopy(node))
    return new
