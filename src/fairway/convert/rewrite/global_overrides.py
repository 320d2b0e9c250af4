"""Other objects for the globals and builtins that a model's functions load, while a `with` lasts.

A function's code is replaced by a copy in which the instructions that load such a name load another. Line numbers,
defaults, closures and whoever holds the function stay as they are.
"""

from __future__ import annotations

import builtins
import dis
import functools
import itertools
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch

from fairway.convert.rewrite.install import MARK

_FOREIGN = tuple(
    f"{Path(path).resolve()}/"
    for path in (Path(torch.__file__).parent, Path(numpy.__file__).parent, Path(__file__).parents[2])
)
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
_STANDARD = sysconfig.get_paths()["stdlib"]
_MOST_NAMES = 127
"""A load by a byte of argument reaches so many names; the lowest bit says whether what is loaded is called."""


_NUMBERS = itertools.count()
"""Names are used once, so that one `loading` may stand inside another."""


@functools.cache
def is_own_file(file: str) -> bool:
    """True for code of the user and of libraries of models; not for torch, numpy, the standard library and Fairway."""
    if file.startswith("<"):
        return file.startswith(MARK)
    path = str(Path(file).resolve())
    if path.startswith(_INSTALLED):
        return not path.startswith(_FOREIGN)
    return not path.startswith((*_FOREIGN, _STANDARD))


def own_functions(model: torch.nn.Module) -> list[types.FunctionType]:
    """Every function that the model's modules have, and every one that those name."""
    found: dict[int, types.FunctionType] = {}
    seen: dict[int, Any] = {}
    waiting: list[Any] = []
    for module in model.modules():
        if not isinstance(module, torch.jit.ScriptModule):
            waiting += [type(module), *vars(module).values()]
            waiting += [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # held, so that no other object gets its id
        function = _function_of(value)
        if function is None:
            waiting += _members(value)
        elif is_own_file(function.__code__.co_filename):
            found[id(function)] = function
            waiting += _named_by(function)
    return list(found.values())


def _function_of(value: Any) -> types.FunctionType | None:
    value = (
        getattr(value, "__func__", value) if isinstance(value, types.MethodType | staticmethod | classmethod) else value
    )
    value = value.fget if isinstance(value, property) else value
    value = value.func if isinstance(value, functools.partial) else value
    value = vars(value).get("__wrapped__", value) if isinstance(value, functools._lru_cache_wrapper) else value
    return value if isinstance(value, types.FunctionType) else None


def _members(value: Any) -> list[Any]:
    """What a class of the model's own code holds; of other objects, their class."""
    if not isinstance(value, type):
        return [] if type(value).__module__ in ("builtins", "torch") else [type(value)]
    own = [base for base in value.__mro__ if _is_own_class(base)]
    return [member for base in own for member in vars(base).values()]


@functools.cache
def _is_own_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind is not object and file is not None and is_own_file(file)


def _named_by(function: types.FunctionType) -> Iterator[Any]:
    """The objects that the function's code refers to by name, its closure and what it wraps."""
    for cell in function.__closure__ or ():
        if cell != types.CellType():  # not filled yet
            yield cell.cell_contents
    yield vars(function).get("__wrapped__")
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.FunctionType | type):
            yield value
        elif isinstance(value, types.ModuleType) and is_own_file(getattr(value, "__file__", None) or "<"):
            yield from (vars(value)[inner] for inner in names if isinstance(vars(value).get(inner), types.FunctionType))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@contextmanager
def loading(functions: list[types.FunctionType], table: Mapping[Any, Any]) -> Iterator[None]:
    """Let these functions load the table's values for its keys. Of a builtin only calls are changed."""
    aliases = {id(original): f"_fairway_{next(_NUMBERS)}" for original in table}
    changed: list[tuple[types.FunctionType, types.CodeType]] = []
    named = dict(zip(aliases.values(), table.values(), strict=True))
    vars(builtins).update(named)
    try:
        for function in functions:
            code = with_loads(function.__code__, function.__globals__, aliases)
            if code is not None:
                changed.append((function, function.__code__))
                function.__code__ = code
        yield
    finally:
        for function, before in changed:
            function.__code__ = before
        for alias in named:
            vars(builtins).pop(alias)


def with_loads(code: types.CodeType, scope: Mapping[str, Any], aliases: Mapping[int, str]) -> types.CodeType | None:
    """The code with the loads of these objects, known by their ids, changed; None if it has none of them."""
    names, raw, before = list(code.co_names), bytearray(code.co_code), ""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL" and step.arg is not None and before != "EXTENDED_ARG":
            name, called = names[step.arg >> 1], step.arg & 1
            value = scope.get(name, vars(builtins).get(name))
            alias = aliases.get(id(value))
            if alias is not None and (called or isinstance(value, types.ModuleType)):
                if alias not in names:
                    names.append(alias)
                if names.index(alias) <= _MOST_NAMES:
                    raw[step.offset + 1] = names.index(alias) << 1 | called
        before = step.opname
    inner = [with_loads(one, scope, aliases) if isinstance(one, types.CodeType) else None for one in code.co_consts]
    if bytes(raw) == code.co_code and not any(inner):
        return None
    constants = tuple(new or old for new, old in zip(inner, code.co_consts, strict=True))
    return code.replace(co_names=tuple(names), co_code=bytes(raw), co_consts=constants)
