"""Turn Python's expressions into calls that take tensors as well as numbers."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable

import numpy as np
import sympy  # type: ignore[import-untyped]
import torch

from fairway.convert.rewrite.call_graph import MISSING, look_up, split_attributes
from fairway.convert.rewrite.lists import read_counting_list
from fairway.convert.rewrite.loop_checks import Refused
from fairway.convert.rewrite.ragged_rows import PART, read_ragged
from fairway.convert.rewrite.scalars import RuntimeValue

RUNTIME = "_fw"
ALIGNED_MARK = "fairway_aligned"
"""Set on slices to write into whose values are computed for the entire dim."""
_BUILTINS = {
    "min": "min_",
    "max": "max_",
    "abs": "abs_",
    "len": "len_",
    "sum": "sum_",
    "range": "steps",
    "enumerate": "enumerate_",
    "zip": "zip_",
    "reversed": "reversed_",
}
_INSIDE = {"int": "int_", "float": "float_", "bool": "bool_", "str": "text"}
_LIBRARY: list[tuple[object, str]] = [
    (torch.stack, "stack"),
    (torch.cat, "cat"),
    (torch.concat, "cat"),
    (torch.nn.utils.rnn.pad_sequence, "pad_sequence"),
    (torch.allclose, "allclose"),
    (torch.equal, "equal"),
    (torch.tensor, "tensor"),
    (torch.as_tensor, "tensor"),
    (math.ceil, "ceil"),
    (math.floor, "floor"),
    (np.ceil, "ceil"),
    (np.floor, "floor"),
]


def call_runtime(name: str, *args: ast.expr, **kwargs: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load())
    return ast.Call(function, list(args), [ast.keyword(key, value) for key, value in kwargs.items()])


def define_function(name: str, parameters: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(p) for p in parameters], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    return ast.FunctionDef(name, arguments, body or [ast.Pass()], [])


def load_names(names: tuple[str, ...] | list[str]) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())


def store_names(names: tuple[str, ...] | list[str]) -> ast.Tuple:
    return ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())


def make_thunk(body: ast.expr) -> ast.Lambda:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(empty, body)


def make_lambda(parameters: ast.expr, body: ast.expr) -> ast.Lambda:
    """Return `lambda target: body`. If the target is a tuple of names, a second lambda unpacks it."""
    if isinstance(parameters, ast.Name):
        return ast.Lambda(_make_arguments([parameters.id]), body)
    names = [name.id for name in ast.walk(parameters) if isinstance(name, ast.Name)]
    inner = ast.Lambda(_make_arguments(names), body)
    taken = ast.Call(inner, [ast.Starred(ast.Name("_item", ast.Load()), ast.Load())], [])
    return ast.Lambda(_make_arguments(["_item"]), taken)


def _make_arguments(names: list[str]) -> ast.arguments:
    return ast.arguments(posonlyargs=[], args=[ast.arg(n) for n in names], kwonlyargs=[], kw_defaults=[], defaults=[])


class Expressions(ast.NodeTransformer):
    """Rewrites expressions. While `inside` is set, numbers taken out of tensors stay tensors.

    `suspect` selects the comprehensions to rewrite. `convert` returns for a user's function the name under which its
    rewritten form can be called, or None to leave the call as it is.
    """

    def __init__(
        self, scope: dict[str, object], suspect: Callable[[ast.AST], bool], convert: Callable[[ast.expr], str | None]
    ) -> None:
        self.scope, self.suspect, self.convert = scope, suspect, convert
        self.inside = False
        self.iterated = False
        self.chosen: set[str] = set()
        self.varying: set[str] = set()
        self.hidden: set[str] = set()
        self.filled: set[str] = set()
        """Lists that a loop has filled for as long as values say."""

    def truth(self, test: ast.expr) -> ast.expr:
        """Rewrite what asks whether such a list is empty."""
        match test:
            case ast.Name(id=name) if name in self.filled:
                return call_runtime("has_items", test)
            case ast.UnaryOp(op=ast.Not()):
                return ast.UnaryOp(test.op, self.truth(test.operand))
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name) as held]),
                ops=[ast.Gt() | ast.NotEq()],
                comparators=[ast.Constant(value=0)],
            ) if name in self.filled:
                return call_runtime("has_items", held)
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name) as held]),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value=0)],
            ) if name in self.filled:
                return ast.UnaryOp(ast.Not(), call_runtime("has_items", held))
        return test

    def within(self, node: ast.expr) -> ast.expr:
        """Rewrite an expression as for the inside of a loop."""
        outer, self.inside = self.inside, True
        new: ast.expr = self.visit(node)
        self.inside = outer
        return new

    def iterable(self, node: ast.expr) -> ast.expr:
        """Rewrite what a loop runs over. A tensor that is unbound into rows there stays one tensor."""
        outer, self.iterated = self.iterated, True
        new: ast.expr = self.visit(node)
        self.iterated = outer
        return new

    def _live(self, node: ast.expr) -> object:
        chain = split_attributes(node)
        if chain is None or chain[0] in self.hidden:
            return MISSING
        return look_up(chain, self.scope)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        counted = read_counting_list(node, self._live(node.func)) if self.suspect(node) else None
        if counted is not None:
            bounds = [self.visit(bound) for bound in counted.bounds]
            call = call_runtime("count", *bounds, backwards=ast.Constant(counted.backwards))
            call.keywords += [self.visit(keyword) for keyword in node.keywords]
            return call
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        known = name not in self.hidden and name not in self.scope and hasattr(builtins, name)
        converted = self.convert(node.func) if self.inside else None
        self.generic_visit(node)
        if converted is not None:
            own = [ast.Name("self", ast.Load())] if isinstance(node.func, ast.Attribute) else []
            return ast.Call(ast.Name(converted, ast.Load()), [*own, *node.args], node.keywords)
        if known and self._taken_out(name, node):
            return call_runtime(_INSIDE[name], *node.args)
        if known and name == "int" and node.args:
            return call_runtime("plain_int", *node.args)
        if known and name in _BUILTINS:
            node.func = ast.Attribute(ast.Name(RUNTIME, ast.Load()), _BUILTINS[name], ast.Load())
            return node
        return self._library_call(node)

    def _taken_out(self, name: str, node: ast.Call) -> bool:
        return name in _INSIDE and self.inside and len(node.args) == 1 and not node.keywords

    def _library_call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("unbind", "split") and self.iterated:
            own = [] if self._live(node.func.value) is torch else [node.func.value]
            call = call_runtime(node.func.attr, *own, *node.args)
            call.keywords = node.keywords
            return call
        if isinstance(node.func, ast.Attribute) and not node.keywords:
            method, base = node.func.attr, node.func.value
            if method == "item" and not node.args:
                return call_runtime("item" if self.inside else "number", base)
            if method == "tolist" and not node.args and self.inside:
                return call_runtime("tolist", base)
            if method == "astype" and len(node.args) == 1:
                return call_runtime("astype", base, node.args[0])
        split = self._split_by_values(node)
        if split is not None:
            return split
        live = self._live(node.func)
        for function, name in _LIBRARY:
            if live is function:
                node.func = ast.Attribute(ast.Name(RUNTIME, ast.Load()), name, ast.Load())
        return node

    def _split_by_values(self, node: ast.Call) -> ast.AST | None:
        """Return `torch.split(x, sizes.tolist())` or `x.split(sizes.tolist())` by the tensor of sizes."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "split" or node.keywords:
            return None
        given = node.args if self._live(node.func.value) is torch else [node.func.value, *node.args]
        sizes = given[1] if len(given) == 2 else None
        if not isinstance(sizes, ast.Call) or not isinstance(sizes.func, ast.Attribute) or sizes.func.attr != "tolist":
            return None
        return call_runtime("split_ragged", given[0], sizes.func.value)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not isinstance(node.ctx, ast.Load) or isinstance(node.slice, ast.Constant):
            return self.generic_visit(node)
        if not self.inside and not self.suspect(node):
            return self.generic_visit(node)
        outer, self.inside = self.inside, True
        new = call_runtime("get", self.visit(node.value), self.key(node.slice))
        self.inside = outer
        return new

    def key(self, node: ast.expr) -> ast.expr:
        """Return a subscript as a value. Slices become `slice(...)`, or a slice of fixed length if it does not vary."""
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.key(part) for part in node.elts], ast.Load())
        if not isinstance(node, ast.Slice):
            new: ast.expr = self.visit(node)
            return new
        length = self._fixed_length(node)
        if length is not None and node.lower is not None:
            return call_runtime("FixedLengthSlice", self.visit(node.lower), self.visit(length))
        none = ast.Constant(None)
        bounds = [none if b is None else self.visit(b) for b in (node.lower, node.upper, node.step)]
        if any(b is not None and _find_names(b) & self.varying for b in (node.lower, node.upper)):
            aligned = [ast.Constant(True)] if getattr(node, ALIGNED_MARK, False) else []
            return call_runtime("TensorSlice", *bounds, *aligned)
        return ast.Call(ast.Name("slice", ast.Load()), bounds, [])

    def align_slices(self, statements: list[ast.stmt], varying: set[str]) -> None:
        """Let a loop compute with entire dims where it reads and writes the same part, whose length changes.

        `keep[i + 1:] &= overlap[i, i + 1:] < 0.5` reads all columns, and writes those from `i + 1` on.
        """
        outer, self.varying = self.varying, self.varying | varying
        slices = [node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Slice)]
        moving = [node for node in slices if self._moves(node)]
        written = {
            id(part)
            for statement in statements
            for node in ast.walk(statement)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            for part in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
        }
        self.varying = outer
        sides = {id(node) in written for node in moving}
        if len({ast.unparse(node) for node in moving}) != 1 or sides != {True, False}:
            return
        for node in moving:
            if id(node) in written:
                setattr(node, ALIGNED_MARK, True)
            else:
                node.lower = node.upper = node.step = None

    def _moves(self, node: ast.Slice) -> bool:
        bounds = [bound for bound in (node.lower, node.upper) if bound is not None]
        return any(_find_names(bound) & self.varying for bound in bounds) and self._fixed_length(node) is None

    def _fixed_length(self, node: ast.Slice) -> ast.expr | None:
        """Return `upper - lower`, or None if something in it changes from step to step."""
        if node.lower is None or node.upper is None or node.step is not None:
            return None
        if not _find_names(node.lower) & self.varying:
            return None
        symbols: dict[str, tuple[sympy.Symbol, ast.expr]] = {}
        difference = sympy.expand(_to_polynomial(node.upper, symbols) - _to_polynomial(node.lower, symbols))
        left = [pair for pair in symbols.values() if pair[0] in difference.free_symbols]
        if any(_find_names(expression) & self.varying for _, expression in left):
            return None
        written = str(difference)
        for symbol, expression in left:
            written = written.replace(str(symbol), f"({ast.unparse(expression)})")
        return ast.parse(written, mode="eval").body

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self.truth(node.test)
        self.generic_visit(node)
        if not self.inside:
            return node
        return call_runtime("choose", node.test, make_thunk(node.body), make_thunk(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if not self.inside:
            return node
        verb = "both" if isinstance(node.op, ast.And) else "any_of"
        result = node.values[-1]
        for value in reversed(node.values[:-1]):
            result = call_runtime(verb, value, make_thunk(result))
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return call_runtime("negate", node.operand) if isinstance(node.op, ast.Not) and self.inside else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1 or not self.inside:
            return node
        sides = [node.left, *node.comparators]
        pairs: list[ast.expr] = [ast.Compare(sides[k], [op], [sides[k + 1]]) for k, op in enumerate(node.ops)]
        result = pairs[-1]
        for pair in reversed(pairs[:-1]):
            result = call_runtime("both", pair, make_thunk(result))
        return result

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> ast.AST:
        if not self.suspect(node):
            return self.generic_visit(node)
        ragged = self._ragged_list(node)
        if ragged is not None:
            return ragged
        if any(generator.ifs for generator in node.generators):
            raise Refused(
                "the comprehension leaves items out by a condition; write a loop with `if` and `append`", node.lineno
            )
        inside, varying = self.inside, set(self.varying)
        iterables = []
        for generator in node.generators:
            iterables.append(self.visit(generator.iter))
            self.inside = True
            self.varying |= _find_names(generator.target)
        body: ast.expr = self.visit(node.elt)
        for place in reversed(range(len(iterables))):
            verb = "collect" if place == len(iterables) - 1 else "nested"
            body = call_runtime(verb, iterables[place], make_lambda(node.generators[place].target, body))
        self.inside, self.varying = inside, varying
        return body

    visit_GeneratorExp = visit_ListComp

    def _ragged_list(self, node: ast.ListComp | ast.GeneratorExp) -> ast.AST | None:
        """Return a list of rows that differ in length, or None for any other list."""
        generator = node.generators[0]
        parts = read_ragged(node.elt, generator.target)
        if parts is None or len(node.generators) != 1 or generator.ifs or self.inside:
            return None
        outer, self.iterated = self.iterated, True
        held = self.within(generator.iter)
        self.iterated = outer
        row, count = (make_lambda(generator.target, self.within(part)) for part in (parts.row, parts.count))
        through = make_lambda(ast.Name(PART, ast.Store()), self.within(parts.through))
        return call_runtime("make_ragged", held, row, count, through, ast.Constant(parts.is_repeated))


def _find_names(node: ast.expr) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _to_polynomial(node: ast.expr, symbols: dict[str, tuple[sympy.Symbol, ast.expr]]) -> RuntimeValue:
    """Return the expression as a polynomial. Parts other than sums and products are symbols, equal for equal text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return sympy.Integer(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        left, right = _to_polynomial(node.left, symbols), _to_polynomial(node.right, symbols)
        if isinstance(node.op, ast.Mult):
            return left * right
        return left + right if isinstance(node.op, ast.Add) else left - right
    text = ast.unparse(node)
    if text not in symbols:
        symbols[text] = (sympy.Symbol(f"fairway{len(symbols)}x", integer=True), node)
    return symbols[text][0]
