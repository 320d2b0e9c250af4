"""Conditions on sizes: parsed, found in guards, checked against what ONNX can compute, negated and joined."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_FOLDS = ("max", "min")


def parse_condition(text: str) -> ast.expr:
    """Return a condition as a tree."""
    return ast.parse(text, mode="eval").body


def is_computable(tree: ast.expr) -> bool:
    """Return whether a tree is a comparison of integers that ONNX computes like Python."""
    match tree:
        case ast.Compare(left, [op], [right]) if type(op) in _NEGATED:
            return _is_number(left) and _is_number(right)
    return False


def _is_number(tree: ast.expr) -> bool:
    match tree:
        case ast.Constant(value=int(value)):
            return not isinstance(value, bool)
        case ast.Name():
            return True
        case ast.UnaryOp(ast.USub(), operand):
            return _is_number(operand)
        case ast.BinOp(left, ast.FloorDiv() | ast.Mod(), right):  # by a positive number: a size could be zero
            return _is_number(left) and isinstance(right, ast.Constant) and type(right.value) is int and right.value > 0
        case ast.BinOp(left, op, right) if isinstance(op, _ARITHMETIC):
            return _is_number(left) and _is_number(right)
        case ast.Call(ast.Name(name), [_, _, *_] as args, []) if name in _FOLDS:
            return all(map(_is_number, args))
    return False


def find_comparisons(guards: Iterable[str]) -> list[str]:
    """Return the comparisons that guards consist of, each once and without a leading negation."""
    comparisons: dict[str, None] = {}
    for guard in guards:
        for node in ast.walk(parse_condition(guard)):
            if isinstance(node, ast.Compare) and is_computable(node):
                comparisons[ast.unparse(_normalize(node))] = None
    return list(comparisons)


def _normalize(node: ast.Compare) -> ast.Compare:
    """Return an equality or an upper bound: `a != b` and `a == b` divide alike, and so do `a < 9` and `a <= 8`."""
    if isinstance(node.ops[0], ast.NotEq | ast.Gt | ast.GtE):
        node = _flip(node)
    match node:
        case ast.Compare(left, [ast.Lt()], [ast.Constant(value=int(number))]):
            return ast.Compare(left, [ast.LtE()], [ast.Constant(number - 1)])
    return node


def _flip(node: ast.Compare) -> ast.Compare:
    return ast.Compare(node.left, [_NEGATED[type(node.ops[0])]()], node.comparators)


def negate_condition(text: str) -> str:
    """Return the opposite of a comparison."""
    tree = parse_condition(text)
    assert isinstance(tree, ast.Compare)
    return ast.unparse(_flip(tree))


def find_divisors(conditions: Iterable[str]) -> list[int]:
    """Return the numbers by which conditions divide."""
    divisors: dict[int, None] = {}
    for text in conditions:
        for node in ast.walk(parse_condition(text)):
            match node:
                case ast.BinOp(_, ast.Mod() | ast.FloorDiv(), ast.Constant(value=int(number))) if number > 1:
                    divisors[number] = None
    return list(divisors)


def join_terms(terms: Sequence[Sequence[str]]) -> str:
    """Return `a and b or c` for [[a, b], [c]]."""
    return " or ".join(" and ".join(term) for term in terms)


def find_size_names(text: str) -> Iterator[str]:
    """Yield the dims that a condition names."""
    for node in ast.walk(parse_condition(text)):
        if isinstance(node, ast.Name) and node.id not in _FOLDS:
            yield node.id
