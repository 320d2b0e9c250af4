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

from fairway.convert.rewrite.bindings import bound_names
from fairway.convert.rewrite.call_graph import FunctionNode
from fairway.convert.rewrite.install import compile_function
from fairway.convert.rewrite.scalars import Unrewritable
from fairway.convert.rewrite.scriptable import Scriptable


@dataclass(frozen=True)
class _Made:
    function: Any
    writer: Scriptable
    as_tensors: tuple[bool, ...]


@dataclass
class ScriptBlock:
    """Statements to compile, with the names they take and give. Compiled once for each module and kind of values."""

    cut: tuple[ast.stmt, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    helpers: dict[str, FunctionNode]
    original: types.FunctionType
    made: dict[Any, _Made] = field(default_factory=dict, init=False)

    def __call__(self, module: Any, *values: Any) -> Any:
        weights = [] if module is None else [(p.data_ptr(), p.dtype) for p in module.parameters()]
        key = (id(module), tuple(weights), tuple(_kind(value) for value in values))
        if key not in self.made:
            if torch._C._get_tracing_state() is not None:
                # While tracing, sizes are tensors: the kinds are those of the eager run before, whichever it was.
                key = next((k for k in self.made if k[:2] == key[:2]), key)
            if key not in self.made:
                return self._first(key, module, values)
        return self._run(key, module, values)

    def _first(self, key: Any, module: Any, values: tuple[Any, ...]) -> Any:
        """Compiles and runs, in the ways that Python leaves open, until one works.

        `acc = 0` before the loop may mean a number or the first of many tensors; a written value may have dims to drop.
        """
        rebound = set(bound_names(self.cut)) & {n for n, v in zip(self.takes, values, strict=True) if _is_number(v)}
        ways = [(set[str](), False), (rebound, False), (set[str](), True), (rebound, True)]
        first: RuntimeError | None = None
        for as_tensors, reshape_writes in ways if rebound else ways[::2]:
            try:
                self.made[key] = self._compiled(module, values, as_tensors, reshape_writes)
                return self._run(key, module, values)
            except RuntimeError as error:
                first = first or error
        self.made.pop(key, None)
        raise first or Unrewritable("TorchScript cannot compile the loop")

    def _run(self, key: Any, module: Any, values: tuple[Any, ...]) -> Any:
        made = self.made[key]
        held = [_reach(module, chain) for chain in made.writer.tensors.values()]
        return made.function(*[_travelling(v, t) for v, t in zip(values, made.as_tensors, strict=True)], *held)

    def written(
        self, module: Any, reshape_writes: bool = False, is_tensor: dict[str, bool] | None = None
    ) -> tuple[list[ast.stmt], Scriptable]:
        """The statements as TorchScript will see them."""
        writer = Scriptable(self.original, module, self.helpers)
        writer.reshape_writes, writer.is_tensor = reshape_writes, is_tensor or {}
        body: list[ast.stmt] = []
        for statement in self.cut:
            new = writer.visit(copy.deepcopy(statement))
            body += new if isinstance(new, list) else [new]
        return body, writer

    def _compiled(self, module: Any, values: tuple[Any, ...], as_tensors: set[str], reshape_writes: bool) -> _Made:
        kinds = {name: isinstance(value, torch.Tensor) for name, value in zip(self.takes, values, strict=True)}
        body, writer = self.written(module, reshape_writes, kinds)
        head: list[ast.stmt] = []
        arguments = [ast.arg("self")] if writer.modules else []
        for name, value in zip(self.takes, values, strict=True):
            kind, line = ("torch.Tensor", None) if name in as_tensors else _typed(name, value)
            arguments.append(ast.arg(name if line is None else f"{name}_given", ast.parse(kind, mode="eval").body))
            head += [] if line is None else ast.parse(line).body
        arguments += [ast.arg(name, ast.parse("torch.Tensor", mode="eval").body) for name in writer.tensors]
        given = [ast.Name(name, ast.Load()) for name in self.gives]
        result = given[0] if len(given) == 1 else ast.Tuple(list(given), ast.Load())
        signature = ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
        tree = ast.FunctionDef("forward", signature, [*head, *body, ast.Return(result)], [])
        function, _ = compile_function(tree, self.original, {"torch": torch, "math": math}, defaults=False)
        made = _frozen(function, writer.modules) if writer.modules else torch.jit.script(function)
        return _Made(made, writer, tuple(name in as_tensors for name in self.takes))


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


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _kind(value: Any) -> str:
    return type(value).__name__


def _typed(name: str, value: Any) -> tuple[str, str | None]:
    """The type of an argument, and the line that makes it what it was before it travelled."""
    if isinstance(value, torch.Tensor):
        return "torch.Tensor", None
    if value is None:
        return "torch.Tensor", f"{name} = None"
    if isinstance(value, (bool, int, float)):
        return "torch.Tensor", f"{name} = {type(value).__name__}({name}_given)"
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, torch.Tensor) for item in value):
        return "list[torch.Tensor]", None
    raise Unrewritable(f"{name} is a {type(value).__name__}, which TorchScript cannot take here")


def _travelling(value: Any, as_tensor: bool) -> Any:
    if _is_number(value):
        # The start of a sum of tensors takes their dtype: a Loop of ONNX keeps the dtype it starts with.
        return torch.as_tensor(value, dtype=torch.get_default_dtype()) if as_tensor else torch.as_tensor(value)
    if value is None:  # TorchScript leaves out what is asked of a name that is None, and takes nothing but tensors
        return torch.zeros(())
    return list(value) if isinstance(value, tuple) else value
