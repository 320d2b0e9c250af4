"""Cut out the part of a function around its loops, so that TorchScript can compile it into an ONNX Loop.

The part contains every number that bounds the loops and every use of a list that they fill, since a tracer would freeze
either. The module's plain attributes are written in as constants, and small helper functions in place of their calls.
Code that TorchScript cannot express is refused, with the line.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

import torch

from fairway.convert.rewrite.bindings import (
    find_appended_names,
    find_bound_names,
    find_read_names,
    find_written_names,
    walk_own,
)
from fairway.convert.rewrite.call_graph import FunctionNode, FunctionSource
from fairway.convert.rewrite.loop_checks import Refused
from fairway.convert.rewrite.script_blocks import ScriptBlock

BLOCK_NAME = "_fairway_piece"
_NUMERIC = {"item", "size", "numel", "tolist", "shape", "astype"}
_NUMBER_CALLS = {"int", "float", "len", "min", "max", "round"}


def outline(
    source: FunctionSource, module: torch.nn.Module, suspect: Callable[[ast.AST], bool]
) -> tuple[ast.FunctionDef, ScriptBlock]:
    """Return the function with its loops cut out, and the block that was cut."""
    tree = copy.deepcopy(source.tree)
    helpers: dict[str, FunctionNode] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            helpers[node.name] = node
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Lambda)
            and isinstance(node.targets[0], ast.Name)
        ):
            helpers[node.targets[0].id] = node.value
    first, last = _find_span(tree, suspect)
    returned = tree.body[last]
    cut = [node for node in tree.body[first : last + 1] if not _defines_helper(node)]
    if isinstance(returned, ast.Return):
        cut[-1] = ast.Assign([ast.Name("_result", ast.Store())], returned.value or ast.Constant(None), lineno=0)
    if isinstance(returned, ast.Return):
        results: tuple[str, ...] = ("_result",)
    else:
        after = find_read_names(tree.body[last + 1 :])
        results = tuple(n for n in sorted({*find_bound_names(cut), *find_written_names(cut)}) if n in after)
    outside = {a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)} | set(find_bound_names(tree.body[:first]))
    parameters = tuple(sorted((_find_all_reads(cut, helpers) & outside) - {"self"} - set(helpers)))
    block = ScriptBlock(tuple(cut), parameters, results, helpers, source.function)
    block.write(module)  # so that it refuses now and not at the first call
    own = ["self"] if tree.args.args and tree.args.args[0].arg == "self" else ["None"]
    call = f"{BLOCK_NAME}({', '.join([*own, *parameters])})"
    tail = [ast.Return(ast.Name("_result", ast.Load()))] if isinstance(returned, ast.Return) else []
    tree.body[first : last + 1] = [*ast.parse(f"{', '.join(results)} = {call}" if results else call).body, *tail]
    return ast.fix_missing_locations(tree), block


def _find_all_reads(cut: list[ast.stmt], helpers: dict[str, FunctionNode]) -> set[str]:
    """Return the names that the statements and the helpers they call read."""
    names = find_read_names(cut)
    used = [helpers[name] for name in names if name in helpers]
    return names | find_read_names(used)


def _defines_helper(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda))


def _find_span(tree: ast.FunctionDef, suspect: Callable[[ast.AST], bool]) -> tuple[int, int]:
    """Return the positions of the first and the last statement to cut."""
    marked = [k for k, node in enumerate(tree.body) if any(suspect(n) for n in walk_own([node]))]
    if not marked:
        raise Refused(
            "the loop is in a nested function, which TorchScript cannot compile; move it into a method", tree.lineno
        )
    first, last = marked[0], marked[-1]
    lists = set(find_appended_names(tree.body[first : last + 1]))
    lists |= {n for k in marked for n in find_bound_names([tree.body[k]]) if isinstance(tree.body[k], ast.Assign)}
    for k, node in enumerate(tree.body):
        if k > last and find_read_names([node]) & lists:
            last = k
    while True:
        needed = find_read_names(tree.body[first : last + 1])
        numbers = {n for node in tree.body for n in find_bound_names([node]) if _takes_number(node)}
        earlier = [
            k
            for k, node in enumerate(tree.body[:first])
            if set(find_bound_names([node])) & needed and _belongs(node, numbers)
        ]
        if not earlier:
            return first, last
        first = min(earlier)


def _belongs(node: ast.stmt, numbers: set[str]) -> bool:
    """Return whether the statement binds a number read from a tensor, or a list. A tracer would freeze both."""
    if isinstance(node, ast.If):
        return any(_belongs(inner, numbers) for inner in (*node.body, *node.orelse))
    if not isinstance(node, ast.Assign):
        return False
    return _takes_number(node) or bool(find_read_names([node]) & numbers) or isinstance(node.value, ast.List)


def _takes_number(node: ast.stmt) -> bool:
    """Return whether this assigns a number read from a tensor, which a tracer would record as a constant."""
    if not isinstance(node, ast.Assign) or isinstance(node.value, ast.Lambda):
        return False
    value = node.value
    if isinstance(value, ast.Subscript):
        value = value.value
    if isinstance(value, ast.Attribute):
        return value.attr == "shape"
    top = [value] if isinstance(value, (ast.Call, ast.BinOp)) else []
    for part in top:
        for inner in ast.walk(part):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in _NUMBER_CALLS:
                return True
            if (
                isinstance(inner, ast.Call)
                and isinstance(inner.func, ast.Attribute)
                and inner.func.attr in ("item", "astype", "tolist")
            ):
                return True
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _NUMERIC
