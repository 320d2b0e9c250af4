"""Find the parts of a condition whose values can be read without side effects before it is decided."""

from __future__ import annotations

import ast
import types
from dataclasses import dataclass
from functools import cache

import torch

_PURE_METHODS = frozenset(
    {
        "abs",
        "all",
        "allclose",
        "amax",
        "amin",
        "any",
        "argmax",
        "argmin",
        "bool",
        "count_nonzero",
        "cpu",
        "detach",
        "diff",
        "dim",
        "double",
        "eq",
        "equal",
        "flatten",
        "float",
        "ge",
        "gt",
        "int",
        "is_complex",
        "is_floating_point",
        "isfinite",
        "isinf",
        "isnan",
        "item",
        "le",
        "long",
        "lt",
        "max",
        "mean",
        "median",
        "min",
        "ndimension",
        "ne",
        "nelement",
        "norm",
        "nonzero",
        "numel",
        "pow",
        "prod",
        "reshape",
        "size",
        "sqrt",
        "square",
        "squeeze",
        "std",
        "sum",
        "tolist",
        "unique",
        "var",
        "view",
    }
)
_PURE_FUNCTIONS = frozenset(
    {
        "len",
        "int",
        "float",
        "bool",
        "abs",
        "min",
        "max",
        "round",
        "sum",
        "any",
        "all",
        "tuple",
        "list",
        "set",
        "frozenset",
        "sorted",
        "range",
    }
)
_ARITHMETIC_CALLS = frozenset(
    {
        "int",
        "float",
        "bool",
        "abs",
        "min",
        "max",
        "round",
        "math.ceil",
        "math.floor",
        "math.sqrt",
        "math.log2",
    }
)

PlainValue = float | tuple[float, ...] | str | None
"""A number, several numbers, the text of another plain value, or None for a value that cannot be compared."""

MAX_PLAIN_NUMBERS = 64
"""A list or set with more numbers than this is not compared."""


@dataclass(frozen=True)
class ConditionPart:
    """A part of a condition: its text, and the code that evaluates it in the frame of the condition."""

    text: str
    code: types.CodeType

    def read(self, frame: types.FrameType) -> PlainValue:
        """Return the value of this part in a frame, or None if it is not a plain value."""
        try:
            return to_plain_value(eval(self.code, frame.f_globals, frame.f_locals))
        except Exception:
            return None


def to_plain_value(value: object) -> PlainValue:
    """Return a value that can be compared later, or None if there is none."""
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.dtype.is_complex or value.device.type == "meta":
            return None
        value = value.item()
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, tuple | list | set | frozenset | range) and len(value) <= MAX_PLAIN_NUMBERS:
        if all(isinstance(item, bool | int | float) for item in value):
            return tuple(map(float, sorted(value) if isinstance(value, set | frozenset) else value))
        return None
    if value is None or isinstance(value, str | torch.dtype | torch.device):
        return repr(value)
    return None


@cache
def find_leaves(test: ast.expr) -> tuple[ConditionPart, ...]:
    """Return the parts of a condition that arithmetic and comparisons combine, if they can be read safely."""
    texts: dict[str, ast.expr] = {}
    _collect_leaves(test, texts)
    return tuple(
        ConditionPart(text, compile(ast.Expression(ast.fix_missing_locations(tree)), "<leaf>", "eval"))
        for text, tree in texts.items()
    )


def _collect_leaves(tree: ast.expr, leaves: dict[str, ast.expr]) -> None:
    match tree:
        case ast.Constant():
            return
        case ast.BinOp(left, _, right):
            _collect_leaves(left, leaves)
            _collect_leaves(right, leaves)
        case ast.Compare(left, _, comparators):
            for item in (left, *comparators):
                _collect_leaves(item, leaves)
        case ast.BoolOp(_, values):
            for item in values:
                _collect_leaves(item, leaves)
        case ast.UnaryOp(_, operand):
            _collect_leaves(operand, leaves)
        case ast.Call(func, args, []) if ast.unparse(func) in _ARITHMETIC_CALLS and not _is_tensor_read(args):
            for item in args:
                _collect_leaves(item, leaves)
        case _ if _is_pure(tree):
            leaves[ast.unparse(tree)] = tree


def _is_tensor_read(args: list[ast.expr]) -> bool:
    """Return whether a conversion is applied to a single tensor-like expression, which is then read with it."""
    return len(args) == 1 and isinstance(args[0], ast.Call | ast.Compare)


def _is_pure(tree: ast.expr) -> bool:
    match tree:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute(value):
            return _is_pure(value)
        case ast.Subscript(value, index):
            return _is_pure(value) and _is_pure(index)
        case ast.Slice(lower, upper, step):
            return all(part is None or _is_pure(part) for part in (lower, upper, step))
        case ast.Tuple(items) | ast.List(items) | ast.Set(items):
            return all(map(_is_pure, items))
        case ast.UnaryOp(_, operand):
            return _is_pure(operand)
        case ast.BinOp(left, _, right):
            return _is_pure(left) and _is_pure(right)
        case ast.Compare(left, _, comparators):
            return all(map(_is_pure, (left, *comparators)))
        case ast.Call(func, args, keywords):
            inside = all(map(_is_pure, args)) and all(_is_pure(k.value) for k in keywords)
            if isinstance(func, ast.Name):
                return func.id in _PURE_FUNCTIONS and inside
            return isinstance(func, ast.Attribute) and func.attr in _PURE_METHODS and _is_pure(func.value) and inside
    return False


@cache
def find_assignments(file: str, function_line: int) -> dict[str, frozenset[int]]:
    """Return, for each name of a function, the lines of the statements that assign it."""
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if function_line in (first, node.lineno):
                return _list_assignments(node)
    return {}


def _list_assignments(function: ast.AST) -> dict[str, frozenset[int]]:
    lines_by_name: dict[str, set[int]] = {}
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr | ast.For):
            targets = [node.target]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)  # type: ignore[attr-defined]
                    lines_by_name.setdefault(name.id, set()).update(lines)
    return {name: frozenset(lines) for name, lines in lines_by_name.items()}
