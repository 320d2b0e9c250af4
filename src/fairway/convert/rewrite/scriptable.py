"""Write statements so that TorchScript can read them: without attributes of a live module, numpy, or small helpers."""

from __future__ import annotations

import ast
import copy
import math
import types

import numpy as np
import torch

from fairway.convert.rewrite.call_graph import (
    MISSING,
    FunctionNode,
    collect_visible_names,
    find_method,
    is_model_code,
    look_up,
    read_source,
    split_attributes,
    unwrap_function,
)
from fairway.convert.rewrite.flow import is_module_choice
from fairway.convert.rewrite.inline import inline_call, is_taken_from
from fairway.convert.rewrite.loop_checks import Refused
from fairway.convert.rewrite.scalars import RuntimeValue
from fairway.torch_internals import module_children


def _refuse_recursion(function: FunctionNode, call: ast.Call) -> None:
    if is_taken_from(call, function):
        raise Refused(f"`{ast.unparse(call.func)}` calls itself, and ONNX has no recursion", call.lineno)


def _is_any_of(value: RuntimeValue, *candidates: RuntimeValue) -> bool:
    return any(value is candidate for candidate in candidates)


def _is_reversed(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "::-1"


class ScriptWriter(ast.NodeTransformer):
    """Rewrites statements for TorchScript, and collects the modules and tensors that they use."""

    def __init__(self, function: types.FunctionType, module: torch.nn.Module, helpers: dict[str, FunctionNode]) -> None:
        self.module, self.helpers = module, helpers
        self.scope = {**collect_visible_names(function), "self": module}
        self.modules: dict[str, torch.nn.Module] = {}
        self.tensors: dict[str, tuple[str, ...]] = {}
        self.reshape_writes = False
        self.is_tensor: dict[str, bool] = {}

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        """Decide `if torch.is_tensor(n)` here, since numbers are numbers again inside the block."""
        known = self._decide_test(node.test)
        if known is None:
            return self.generic_visit(node)
        return [self.visit(statement) for statement in (node.body if known else node.orelse)] or ast.Pass()

    def _decide_test(self, test: ast.expr) -> bool | None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._decide_test(test.operand)
            return None if inner is None else not inner
        if not isinstance(test, ast.Call) or not test.args or not isinstance(test.args[0], ast.Name):
            return None
        asks_for_tensor = ast.unparse(test.func) == "torch.is_tensor" or (
            ast.unparse(test.func) == "isinstance" and ast.unparse(test.args[1]) in ("torch.Tensor", "Tensor")
        )
        return self.is_tensor.get(test.args[0].id) if asks_for_tensor else None

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if self.reshape_writes and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            # Python's `out[i] = v` drops leading dims of size 1; TorchScript's does not.
            value, place = ast.unparse(node.value), ast.unparse(node.targets[0])
            node.value = ast.parse(f"torch.reshape({value}, {place}.shape)", mode="eval").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        inlined = self._inline(node)
        if inlined is not None:
            new: ast.AST = self.visit(inlined)
            return new
        chosen = self._rewrite_choice(node)
        if chosen is not None:
            return chosen
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "item":
                return ast.Call(ast.Name("int", ast.Load()), [node.func.value], [])
            if node.func.attr == "astype":
                return ast.Call(ast.Name("int", ast.Load()), [node.func.value], [])
        return self._replace_python_only(node) or self._replace_rounding(node)

    def _replace_python_only(self, node: ast.Call) -> ast.expr | None:
        """Replace `reversed(range(n))`, `sum` over tensors, and `norm` of order 2, which TorchScript lacks."""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "norm":
            given = {keyword.arg for keyword in node.keywords}
            if not node.args and "dim" in given and "p" not in given:
                return ast.Call(node.func, [], [ast.keyword("p", ast.Constant(2)), *node.keywords])
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        inner = node.args[0] if len(node.args) == 1 else None
        if name == "reversed" and isinstance(inner, ast.Call) and len(inner.args) in (1, 2):
            low, high = (["0", *map(ast.unparse, inner.args)])[-2:]
            return ast.parse(f"range(({high}) - 1, ({low}) - 1, -1)", mode="eval").body
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "stack"
            and node.args
            and _is_reversed(node.args[0])
        ):
            assert isinstance(node.args[0], ast.Subscript)
            dims = [*node.args[1:], *[keyword.value for keyword in node.keywords if keyword.arg == "dim"]]
            node.args[0] = node.args[0].value
            return ast.Call(
                ast.Attribute(node, "flip", ast.Load()), [ast.List([(dims or [ast.Constant(0)])[0]], ast.Load())], []
            )
        if name == "sum" and isinstance(inner, (ast.ListComp, ast.GeneratorExp)):
            rows = ast.unparse(ast.ListComp(inner.elt, inner.generators))
            return ast.parse(f"torch.stack({rows}).sum(0)", mode="eval").body
        return None

    def _replace_rounding(self, node: ast.Call) -> ast.AST:
        """Write `ceil(a / b)` with integers: the exporter makes a float of it, which cannot bound a Loop."""
        live = self._live(node.func)
        up, down = _is_any_of(live, np.ceil, math.ceil), _is_any_of(live, np.floor, math.floor)
        if not (up or down) or len(node.args) != 1:
            return node
        value = node.args[0]
        if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)):
            node.func = ast.Attribute(ast.Name("math", ast.Load()), "ceil" if up else "floor", ast.Load())
            return node
        text = f"({ast.unparse(value.left)} + {ast.unparse(value.right)} - 1)" if up else f"({ast.unparse(value.left)})"
        return ast.parse(f"{text} // ({ast.unparse(value.right)})", mode="eval").body

    def _live(self, node: ast.expr) -> RuntimeValue:
        chain = split_attributes(node)
        return MISSING if chain is None else look_up(chain, self.scope)

    def _inline(self, node: ast.Call) -> ast.expr | None:
        if isinstance(node.func, ast.Name) and node.func.id in self.helpers:
            _refuse_recursion(self.helpers[node.func.id], node)
            made = inline_call(self.helpers[node.func.id], node)
            if made is None:
                raise Refused(
                    f"the helper `{node.func.id}` is more than assignments, conditions and returns; write it as "
                    "one expression",
                    node.lineno,
                )
            return made
        chain = split_attributes(node.func)
        method = chain is not None and len(chain) == 2 and chain[0] == "self"
        if method and chain is not None and chain[1] in module_children(self.module):
            return None
        target = (
            find_method(self.module, chain[1])
            if method and chain is not None
            else unwrap_function(self._live(node.func))
        )
        source = read_source(target) if is_model_code(target) else None
        if source is None:
            return None
        _refuse_recursion(source.tree, node)
        static = method and chain is not None and isinstance(type(self.module).__dict__.get(chain[1]), staticmethod)
        made = inline_call(source.tree, node, skip=1 if method and not static else 0)
        if made is None and method:
            raise Refused(
                f"the loop calls the method `{ast.unparse(node.func)}`, which is more than assignments, conditions "
                "and returns",
                node.lineno,
            )
        return made

    def _rewrite_choice(self, node: ast.Call) -> ast.expr | None:
        """Write `self.nets[i](x)` so that every net runs and one of the stacked results is taken."""
        if not isinstance(node.func, ast.Subscript):
            return None
        held = self._live(node.func.value)
        if not is_module_choice(held):
            return None
        if isinstance(held, (dict, torch.nn.ModuleDict)):
            raise Refused("modules are chosen from a dict by a value; use a ModuleList and a number", node.lineno)
        calls = [
            ast.Call(
                self._module(f"{'_'.join(split_attributes(node.func.value) or ())}_{k}", module),
                [self.visit(copy.deepcopy(a)) for a in node.args],
                [ast.keyword(k2.arg, self.visit(copy.deepcopy(k2.value))) for k2 in node.keywords],
            )
            for k, module in enumerate(held)
        ]
        stacked = ast.Call(
            ast.Attribute(ast.Name("torch", ast.Load()), "stack", ast.Load()), [ast.List(list(calls), ast.Load())], []
        )
        index = ast.Call(ast.Name("int", ast.Load()), [self.visit(node.func.slice)], [])
        return ast.Subscript(stacked, index, ast.Load())

    def _module(self, name: str, module: torch.nn.Module) -> ast.expr:
        self.modules[name] = module
        return ast.Attribute(ast.Name("self", ast.Load()), name, ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        chain = split_attributes(node)
        if chain is None or chain[0] != "self":
            return self.generic_visit(node)
        value, used = self.module, 1
        held: RuntimeValue = value
        while used < len(chain) and (isinstance(held, torch.nn.Module) or held is self.module):
            held = look_up(("self", *chain[1 : used + 1]), self.scope)
            used += 1
        name = "_".join(chain[:used])
        rest = chain[used:]
        if isinstance(held, torch.Tensor):
            self.tensors[name] = chain[:used]
            new: ast.expr = ast.Name(name, ast.Load())
        elif isinstance(held, torch.nn.Module):
            new = self._module(name, held)
        elif isinstance(held, (bool, int, float, str, np.integer, np.floating)):
            new = ast.Constant(held.item() if isinstance(held, np.generic) else held)
        else:
            raise Refused(
                f"`{ast.unparse(node)}` is a {type(held).__name__}, which TorchScript cannot take", node.lineno
            )
        for attribute in rest:
            new = ast.Attribute(new, attribute, ast.Load())
        return new
