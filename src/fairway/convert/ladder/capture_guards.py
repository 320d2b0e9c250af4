"""The guards of a captured program, as conditions on the dims of the spec."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from fairway import torch_internals
from fairway.model.dims import Size
from fairway.model.subject import Subject
from fairway.torch_internals import size_expression


def read_guards(program: torch.export.ExportedProgram, subject: Subject) -> tuple[str, ...]:
    """Return every condition on sizes under which the program is valid, as Python on the dims' names.

    They are torch's guards from running the model and from decomposing its operators, the ends of ranges, and dims that
    were fixed. torch treats the sizes 0 and 1 separately and always assumes larger ones. That does not count as a guard
    here; such sizes are sampled.
    """
    sizes: dict[str, Size] = {}
    fixed: list[str] = []
    environment: Any = None
    for size, symbol in _pair_sizes_with_symbols(program, subject):
        if isinstance(symbol, int):
            if size.names:
                fixed.append(f"{size} == {symbol}")
            continue
        environment = symbol.node.shape_env
        sizes.setdefault(str(size_expression(symbol)), size)
    expressions = _list_conditions(environment, program, set(sizes))
    conditions = [rewrite_condition(expression, sizes) for expression in expressions]
    return tuple(dict.fromkeys([*fixed, *(text for text in conditions if text is not None)]))


def _pair_sizes_with_symbols(program: torch.export.ExportedProgram, subject: Subject) -> Iterator[tuple[Size, Any]]:
    inputs = set(program.graph_signature.user_inputs)
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in inputs]
    for node, spec in zip(placeholders, subject.spec, strict=False):
        yield from zip(spec.shape, getattr(node.meta.get("val"), "shape", ()), strict=False)


def _list_conditions(environment: Any, program: torch.export.ExportedProgram, symbols: set[str]) -> Iterator[Any]:
    """Yield sympy conditions: guards, assertions deferred to run time, and the ends of ranges above the usual 2."""
    if environment is None:
        return
    yield from (guard.expr for guard in environment.guards)
    for deferred in environment.deferred_runtime_asserts.values():
        yield from (assertion.expr for assertion in deferred)
    for symbol, bounds in program.range_constraints.items():
        if str(symbol) not in symbols:
            continue
        if getattr(bounds.lower, "is_Integer", False) and int(bounds.lower) > 2:
            yield symbol >= bounds.lower
        if getattr(bounds.upper, "is_Integer", False):
            yield symbol <= bounds.upper


def rewrite_condition(expression: object, sizes: dict[str, Size]) -> str | None:
    """Return a sympy condition on torch's symbols as one on the dims, or None if it is about values too."""
    return _rename(_print_as_python(expression), sizes)


def _print_as_python(expression: object) -> str:
    return str(torch_internals.PythonPrinter().doprint(expression))


class _Rename(ast.NodeTransformer):
    def __init__(self, sizes: dict[str, Size]) -> None:
        self._sizes = sizes
        self.unknown = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(arg) for arg in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._sizes:
            self.unknown = True  # a size that follows from values
            return node
        return ast.parse(str(self._sizes[node.id]), mode="eval").body


def _rename(text: str, sizes: dict[str, Size]) -> str | None:
    """Return a condition on torch's symbols as one on the dims, or None if it is about values too."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return None
    rename = _Rename(sizes)
    renamed = rename.visit(tree)
    return None if rename.unknown else ast.unparse(renamed)
