"""The part of a function around its loops is cut out, so that TorchScript can compile it into an ONNX Loop.

The part starts early enough to hold every number the loops are bounded by, and ends late enough to hold every use of a
list they fill; a tracer would freeze either. The module's plain attributes are written in as constants, its small
helper functions in place of their calls. Refused, with the line, is what TorchScript has no word for.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

import torch

from fairway.convert.rewrite.bindings import appended_names, bound_names, read_names, walk_own, written_names
from fairway.convert.rewrite.call_graph import FunctionNode, FunctionSource
from fairway.convert.rewrite.functional import Refused
from fairway.convert.rewrite.script_blocks import ScriptBlock

PIECE = "_fairway_piece"
_NUMERIC = {"item", "size", "numel", "tolist", "shape", "astype"}
_NUMBER_CALLS = {"int", "float", "len", "min", "max", "round"}


def outline(
    source: FunctionSource, module: torch.nn.Module, suspect: Callable[[ast.AST], bool]
) -> tuple[ast.FunctionDef, ScriptBlock]:
    """The function with its loops cut out, and the piece that was cut."""
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
    first, last = _span(tree, suspect)
    returned = tree.body[last]
    cut = [node for node in tree.body[first : last + 1] if not _defines_helper(node)]
    if isinstance(returned, ast.Return):
        cut[-1] = ast.Assign([ast.Name("_result", ast.Store())], returned.value or ast.Constant(None), lineno=0)
    if isinstance(returned, ast.Return):
        gives: tuple[str, ...] = ("_result",)
    else:
        after = read_names(tree.body[last + 1 :])
        gives = tuple(n for n in sorted({*bound_names(cut), *written_names(cut)}) if n in after)
    outside = {a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)} | set(bound_names(tree.body[:first]))
    takes = tuple(sorted((_all_reads(cut, helpers) & outside) - {"self"} - set(helpers)))
    piece = ScriptBlock(tuple(cut), takes, gives, helpers, source.function)
    piece.written(module)  # refuses now rather than at the first call
    own = ["self"] if tree.args.args and tree.args.args[0].arg == "self" else ["None"]
    call = f"{PIECE}({', '.join([*own, *takes])})"
    tail = [ast.Return(ast.Name("_result", ast.Load()))] if isinstance(returned, ast.Return) else []
    tree.body[first : last + 1] = [*ast.parse(f"{', '.join(gives)} = {call}" if gives else call).body, *tail]
    return ast.fix_missing_locations(tree), piece


def _all_reads(cut: list[ast.stmt], helpers: dict[str, FunctionNode]) -> set[str]:
    """What the statements read, and what the helpers they call read besides."""
    names = read_names(cut)
    used = [helpers[name] for name in names if name in helpers]
    return names | read_names(used)


def _defines_helper(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda))


def _span(tree: ast.FunctionDef, suspect: Callable[[ast.AST], bool]) -> tuple[int, int]:
    """The places of the first and the last statement to cut."""
    marked = [k for k, node in enumerate(tree.body) if any(suspect(n) for n in walk_own([node]))]
    if not marked:
        raise Refused(
            "the loop stands in a nested function, out of TorchScript's reach; move it into a method", tree.lineno
        )
    first, last = marked[0], marked[-1]
    lists = set(appended_names(tree.body[first : last + 1]))
    lists |= {n for k in marked for n in bound_names([tree.body[k]]) if isinstance(tree.body[k], ast.Assign)}
    for k, node in enumerate(tree.body):
        if k > last and read_names([node]) & lists:
            last = k
    while True:
        needed = read_names(tree.body[first : last + 1])
        numbers = {n for node in tree.body for n in bound_names([node]) if _takes_number(node)}
        earlier = [
            k
            for k, node in enumerate(tree.body[:first])
            if set(bound_names([node])) & needed and _belongs(node, numbers)
        ]
        if not earlier:
            return first, last
        first = min(earlier)


def _belongs(node: ast.stmt, numbers: set[str]) -> bool:
    """True where a tracer would freeze what the statement binds: numbers out of tensors, and lists."""
    if isinstance(node, ast.If):
        return any(_belongs(inner, numbers) for inner in (*node.body, *node.orelse))
    if not isinstance(node, ast.Assign):
        return False
    return _takes_number(node) or bool(read_names([node]) & numbers) or isinstance(node.value, ast.List)


def _takes_number(node: ast.stmt) -> bool:
    """True for an assignment of a number that comes out of a tensor, which a tracer would see as a constant."""
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
