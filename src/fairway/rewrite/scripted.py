"""A piece of a function, compiled by TorchScript when it is first run, with types read off the values it is given.

Numbers travel as tensors and become numbers again inside, so that a tracer records where they came from. A piece that
calls modules is frozen: a trace can hold a compiled function, but not a compiled module that is no part of the model.
"""

from __future__ import annotations

import ast
import copy
import math
import types
from dataclasses import dataclass, field
from typing import Any

import torch

from fairway.rewrite.install import compile_function
from fairway.rewrite.reach import FunctionNode
from fairway.rewrite.scalars import Unrewritable
from fairway.rewrite.scriptable import Scriptable


@dataclass
class Piece:
    """Statements to compile, with the names they take and give. Compiled once for each module and kind of values."""

    cut: tuple[ast.stmt, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    helpers: dict[str, FunctionNode]
    original: types.FunctionType
    made: dict[Any, tuple[Any, Scriptable]] = field(default_factory=dict, init=False)

    def __call__(self, module: Any, *values: Any) -> Any:
        weights = [] if module is None else [(p.data_ptr(), p.dtype) for p in module.parameters()]
        key = (id(module), tuple(weights), tuple(_kind(value) for value in values))
        if key not in self.made:
            if torch._C._get_tracing_state() is not None:
                # While tracing, sizes are tensors: the kinds are those of the eager run before, whichever it was.
                key = next((k for k in self.made if k[:2] == key[:2]), key)
            if key not in self.made:
                self.made[key] = self._compiled(module, values)
        function, writer = self.made[key]
        held = [_reach(module, chain) for chain in writer.tensors.values()]
        return function(*[_travelling(value) for value in values], *held)

    def written(self, module: Any) -> tuple[list[ast.stmt], Scriptable]:
        """The statements as TorchScript will see them."""
        writer = Scriptable(self.original, module, self.helpers)
        return [writer.visit(copy.deepcopy(statement)) for statement in self.cut], writer

    def _compiled(self, module: Any, values: tuple[Any, ...]) -> tuple[Any, Scriptable]:
        body, writer = self.written(module)
        head: list[ast.stmt] = []
        arguments = [ast.arg("self")] if writer.modules else []
        for name, value in zip(self.takes, values, strict=True):
            kind, line = _typed(name, value)
            arguments.append(ast.arg(name if line is None else f"{name}_given", ast.parse(kind, mode="eval").body))
            head += [] if line is None else ast.parse(line).body
        arguments += [ast.arg(name, ast.parse("torch.Tensor", mode="eval").body) for name in writer.tensors]
        given = [ast.Name(name, ast.Load()) for name in self.gives]
        result = given[0] if len(given) == 1 else ast.Tuple(list(given), ast.Load())
        signature = ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
        tree = ast.FunctionDef("forward", signature, [*head, *body, ast.Return(result)], [])
        function, _ = compile_function(tree, self.original, {"torch": torch, "math": math}, defaults=False)
        return (_frozen(function, writer.modules) if writer.modules else torch.jit.script(function)), writer


def _frozen(forward: Any, modules: dict[str, torch.nn.Module]) -> Any:
    """A compiled function with the modules' weights as constants in it."""
    holder = type("Loop", (torch.nn.Module,), {"forward": forward})()
    for name, module in modules.items():
        holder.add_module(name, copy.deepcopy(module).eval().requires_grad_(False))
    graph = torch.jit.freeze(torch.jit.script(holder.eval())).graph.copy()
    torch._C._jit_pass_inline(graph)
    torch._C._jit_pass_dce(graph)
    graph.eraseInput(0)
    return torch._C._create_function_from_graph("loop", graph)


def _reach(module: Any, chain: tuple[str, ...]) -> Any:
    for name in chain[1:]:
        module = getattr(module, name)
    return module


def _kind(value: Any) -> str:
    return type(value).__name__


def _typed(name: str, value: Any) -> tuple[str, str | None]:
    """The type of an argument, and the line that makes it what it was before it travelled."""
    if isinstance(value, torch.Tensor):
        return "torch.Tensor", None
    if isinstance(value, (bool, int, float)):
        return "torch.Tensor", f"{name} = {type(value).__name__}({name}_given)"
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, torch.Tensor) for item in value):
        return "list[torch.Tensor]", None
    raise Unrewritable(f"{name} is a {type(value).__name__}, which TorchScript cannot take here")


def _travelling(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return torch.as_tensor(value)
    return list(value) if isinstance(value, tuple) else value
