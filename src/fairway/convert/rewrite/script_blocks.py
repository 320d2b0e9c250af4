"""A block of a function that TorchScript compiles when it first runs, with the types of the values it gets.

Numbers are passed as tensors and become numbers again inside, so that a tracer records their origin. A block that calls
modules is frozen: a trace can contain a compiled function, but not a compiled module outside the model.
"""

from __future__ import annotations

import ast
import copy
import math
import types
from dataclasses import dataclass, field

import torch

from fairway.convert.rewrite.bindings import find_bound_names
from fairway.convert.rewrite.call_graph import FunctionNode
from fairway.convert.rewrite.install import compile_function
from fairway.convert.rewrite.scalars import RuntimeValue, Unrewritable
from fairway.convert.rewrite.scriptable import ScriptWriter
from fairway.torch_internals import create_function_from_graph, eliminate_dead_code, get_tracing_state, inline_calls


@dataclass(frozen=True)
class _CompiledBlock:
    function: RuntimeValue
    writer: ScriptWriter
    as_tensors: tuple[bool, ...]


@dataclass
class ScriptBlock:
    """Statements to compile, with their parameters and results. Compiled once for each module and kind of values."""

    cut: tuple[ast.stmt, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    helpers: dict[str, FunctionNode]
    original: types.FunctionType
    made: dict[RuntimeValue, _CompiledBlock] = field(default_factory=dict, init=False)

    def __call__(self, module: RuntimeValue, *values: RuntimeValue) -> RuntimeValue:
        weights = [] if module is None else [(p.data_ptr(), p.dtype) for p in module.parameters()]
        key = (id(module), tuple(weights), tuple(_type_name(value) for value in values))
        if key not in self.made:
            if get_tracing_state() is not None:
                # Sizes are tensors in a trace, so the kinds are those of the eager run before.
                key = next((k for k in self.made if k[:2] == key[:2]), key)
            if key not in self.made:
                return self._compile_and_run(key, module, values)
        return self._run(key, module, values)

    def _compile_and_run(self, key: object, module: object, values: tuple[object, ...]) -> object:
        """Compile and run with each reading that Python allows, until one works.

        `acc = 0` before the loop may be a number or the first of many tensors. A value that is written may have dims to
        drop.
        """
        rebound = set(find_bound_names(self.cut)) & {
            n for n, v in zip(self.takes, values, strict=True) if _is_number(v)
        }
        ways = [(set[str](), False), (rebound, False), (set[str](), True), (rebound, True)]
        first: RuntimeError | None = None
        for as_tensors, reshape_writes in ways if rebound else ways[::2]:
            try:
                self.made[key] = self._compile(module, values, as_tensors, reshape_writes)
                return self._run(key, module, values)
            except RuntimeError as error:
                first = first or error
        self.made.pop(key, None)
        raise first or Unrewritable("TorchScript cannot compile the loop")

    def _run(self, key: RuntimeValue, module: RuntimeValue, values: tuple[RuntimeValue, ...]) -> RuntimeValue:
        made = self.made[key]
        held = [_get_attribute(module, chain) for chain in made.writer.tensors.values()]
        return made.function(*[_to_argument(v, t) for v, t in zip(values, made.as_tensors, strict=True)], *held)

    def write(
        self, module: RuntimeValue, reshape_writes: bool = False, is_tensor: dict[str, bool] | None = None
    ) -> tuple[list[ast.stmt], ScriptWriter]:
        """Return the statements as TorchScript reads them, and the writer, which knows the modules they use."""
        writer = ScriptWriter(self.original, module, self.helpers)
        writer.reshape_writes, writer.is_tensor = reshape_writes, is_tensor or {}
        body: list[ast.stmt] = []
        for statement in self.cut:
            new = writer.visit(copy.deepcopy(statement))
            body += new if isinstance(new, list) else [new]
        return body, writer

    def _compile(
        self, module: object, values: tuple[object, ...], as_tensors: set[str], reshape_writes: bool
    ) -> _CompiledBlock:
        kinds = {name: isinstance(value, torch.Tensor) for name, value in zip(self.takes, values, strict=True)}
        body, writer = self.write(module, reshape_writes, kinds)
        head: list[ast.stmt] = []
        arguments = [ast.arg("self")] if writer.modules else []
        for name, value in zip(self.takes, values, strict=True):
            kind, line = ("torch.Tensor", None) if name in as_tensors else _annotate(name, value)
            arguments.append(ast.arg(name if line is None else f"{name}_given", ast.parse(kind, mode="eval").body))
            head += [] if line is None else ast.parse(line).body
        arguments += [ast.arg(name, ast.parse("torch.Tensor", mode="eval").body) for name in writer.tensors]
        given = [ast.Name(name, ast.Load()) for name in self.gives]
        result = given[0] if len(given) == 1 else ast.Tuple(list(given), ast.Load())
        signature = ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
        tree = ast.FunctionDef("forward", signature, [*head, *body, ast.Return(result)], [])
        function, _ = compile_function(tree, self.original, {"torch": torch, "math": math}, defaults=False)
        made = _freeze(function, writer.modules) if writer.modules else torch.jit.script(function)
        return _CompiledBlock(made, writer, tuple(name in as_tensors for name in self.takes))


def _freeze(forward: object, modules: dict[str, torch.nn.Module]) -> object:
    """Return a compiled function with the modules' weights as constants in it."""
    holder = type("Loop", (torch.nn.Module,), {"forward": forward})()
    for name, module in modules.items():
        holder.add_module(name, copy.deepcopy(module).eval().requires_grad_(False))
    graph = torch.jit.freeze(torch.jit.script(holder.eval())).graph.copy()
    inline_calls(graph)
    eliminate_dead_code(graph)
    graph.eraseInput(0)
    return create_function_from_graph("loop", graph)


def _get_attribute(module: object, chain: tuple[str, ...]) -> object:
    for name in chain[1:]:
        module = getattr(module, name)
    return module


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float))


def _type_name(value: object) -> str:
    return type(value).__name__


def _annotate(name: str, value: object) -> tuple[str, str | None]:
    """Return an argument's type, and the line that turns the tensor back into the value that was passed."""
    if isinstance(value, torch.Tensor):
        return "torch.Tensor", None
    if value is None:
        return "torch.Tensor", f"{name} = None"
    if isinstance(value, (bool, int, float)):
        return "torch.Tensor", f"{name} = {type(value).__name__}({name}_given)"
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, torch.Tensor) for item in value):
        return "list[torch.Tensor]", None
    raise Unrewritable(f"{name} is a {type(value).__name__}, which TorchScript cannot take here")


def _to_argument(value: RuntimeValue, as_tensor: bool) -> RuntimeValue:
    if _is_number(value):
        # The start of a sum of tensors gets their dtype, since ONNX's Loop keeps the dtype it starts with.
        return torch.as_tensor(value, dtype=torch.get_default_dtype()) if as_tensor else torch.as_tensor(value)
    if value is None:  # TorchScript takes nothing but tensors, and drops code that depends on a name that is None
        return torch.zeros(())
    return list(value) if isinstance(value, tuple) else value
