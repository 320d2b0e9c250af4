"""A function as a module: functions, lambdas, bound methods, partial calls, and objects that can be called."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping

import torch

from fairway.model.user_types import UserModel

MAX_SEARCH_DEPTH = 4
"""Levels of closures, attributes and containers in which a function's modules are looked for."""


class FunctionModel(torch.nn.Module):
    """A function as a module. The modules that the function uses are its parts, so their weights are its weights."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        for name, part in find_parts(function).items():
            self.add_module(name, part)
        self.forward = function


def wrap_function(function: Callable[..., object]) -> FunctionModel:
    """Return the function as a module that has the function's name."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not hasattr(inner, "__qualname__"):  # an object with __call__
        inner = type(inner)
    name = inner.__qualname__.replace("<lambda>", "function").replace("<locals>.", "")
    kind = type(name.rpartition(".")[2], (FunctionModel,), {"__module__": inner.__module__ or "", "__qualname__": name})
    is_plain = isinstance(function, types.FunctionType | types.MethodType | types.BuiltinFunctionType)
    is_known = is_plain or isinstance(function, functools.partial | torch.jit.ScriptFunction)
    call: UserModel = function
    model: FunctionModel = kind(function if is_known else call.__call__)
    return model


def find_parts(function: Callable[..., object]) -> dict[str, torch.nn.Module]:
    """Return the modules that a function can reach by its closure, its globals, its object or its fixed arguments."""
    parts: dict[str, torch.nn.Module] = {}
    seen: set[int] = set()

    def visit(name: str, item: UserModel, depth: int) -> None:
        if id(item) in seen or depth > MAX_SEARCH_DEPTH:
            return
        seen.add(id(item))
        if isinstance(item, torch.nn.Module):
            parts[_make_free_name(name, parts)] = item
            return
        for inner_name, inner in _list_inside(item):
            visit(inner_name or name, inner, depth + 1)

    visit("part", function, 0)
    return parts


def _list_inside(item: UserModel) -> Iterator[tuple[str, UserModel]]:
    """Yield the objects that a function, a container or an object refers to, each with its name."""
    if isinstance(item, types.MethodType):
        yield "owner", item.__self__
        yield "", item.__func__
    elif isinstance(item, types.FunctionType):
        yield from _list_variables(item)
    elif isinstance(item, functools.partial):
        yield "", item.func
        yield from ((f"argument_{i}", value) for i, value in enumerate(item.args))
        yield from item.keywords.items()
    elif isinstance(item, Mapping):
        yield from ((str(key), value) for key, value in item.items())
    elif isinstance(item, list | tuple):
        yield from ((f"item_{i}", value) for i, value in enumerate(item))
    elif not isinstance(item, type | types.ModuleType | torch.Tensor) and hasattr(item, "__dict__"):
        yield from ((name, value) for name, value in vars(item).items() if not name.startswith("__"))
        yield "", vars(type(item)).get("__call__")


def _list_variables(function: types.FunctionType) -> Iterator[tuple[str, UserModel]]:
    """Yield the variables of the closure, the globals that the code names, and the defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for name in _list_global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    wrapped = getattr(function, "__wrapped__", None)
    yield from (("", value) for value in (*(function.__defaults__ or ()), wrapped) if value is not None)
    yield from (function.__kwdefaults__ or {}).items()


def _list_global_names(code: types.CodeType) -> Iterator[str]:
    """Yield the names that a function and the functions inside it refer to."""
    yield from code.co_names
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _list_global_names(constant)


def _make_free_name(name: str, taken: Mapping[str, object]) -> str:
    """Return a name that a submodule may have."""
    clean = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "part"
    clean = clean if not hasattr(torch.nn.Module, clean) and clean != "forward" else f"{clean}_"
    number = 2
    free = clean
    while free in taken:
        free, number = f"{clean}_{number}", number + 1
    return free
