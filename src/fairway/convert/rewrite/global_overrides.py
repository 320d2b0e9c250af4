"""Replace the globals and builtins that a model's functions load while a block runs.

A function's code is replaced by a copy in which the instructions that load such a name load another one. Line numbers,
defaults, closures and references to the function stay as they are.
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

import numpy
import torch

from fairway.convert.rewrite.install import FILE_MARK
from fairway.torch_internals import forward_hooks, forward_pre_hooks

_FOREIGN = tuple(
    f"{Path(path).resolve()}/"
    for path in (Path(torch.__file__).parent, Path(numpy.__file__).parent, Path(__file__).parents[2])
)
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
_STANDARD = sysconfig.get_paths()["stdlib"]
_MAX_NAME_INDEX = 127
"""The largest index of a name that fits into one byte of argument. The lowest bit says whether the value is called."""

_NUMBERS = itertools.count()
"""Numbers for names that are used once, so that overrides can be nested."""


@functools.cache
def is_own_file(file: str) -> bool:
    """Return whether code is the user's or a model library's, not torch's, numpy's, the standard library's or ours."""
    if file.startswith("<"):
        return file.startswith(FILE_MARK)
    path = str(Path(file).resolve())
    if path.startswith(_INSTALLED):
        return not path.startswith(_FOREIGN)
    return not path.startswith((*_FOREIGN, _STANDARD))


def find_own_functions(model: torch.nn.Module) -> list[types.FunctionType]:
    """Return every function of the model's modules, and every function that those refer to by name."""
    functions: dict[int, types.FunctionType] = {}
    seen: dict[int, object] = {}
    waiting: list[object] = []
    for module in model.modules():
        if not isinstance(module, torch.jit.ScriptModule):
            waiting += [type(module), *vars(module).values()]
            waiting += forward_hooks(module) + forward_pre_hooks(module)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # held, so that no other object gets its id
        function = _find_function(value)
        if function is None:
            waiting += _find_members(value)
        elif is_own_file(function.__code__.co_filename):
            functions[id(function)] = function
            waiting += _find_referenced(function)
    return list(functions.values())


def _find_function(value: object) -> types.FunctionType | None:
    value = (
        getattr(value, "__func__", value) if isinstance(value, types.MethodType | staticmethod | classmethod) else value
    )
    value = value.fget if isinstance(value, property) else value
    value = value.func if isinstance(value, functools.partial) else value
    value = vars(value).get("__wrapped__", value) if isinstance(value, functools._lru_cache_wrapper) else value
    return value if isinstance(value, types.FunctionType) else None


def _find_members(value: object) -> list[object]:
    """Return the members of a class of the model's own code, and the class of any other object."""
    if not isinstance(value, type):
        return [] if type(value).__module__ in ("builtins", "torch") else [type(value)]
    own = [base for base in value.__mro__ if _is_own_class(base)]
    return [member for base in own for member in vars(base).values()]


@functools.cache
def _is_own_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind is not object and file is not None and is_own_file(file)


def _find_referenced(function: types.FunctionType) -> Iterator[object]:
    """Yield the objects that the function's code refers to by name, its closure, and the function that it wraps."""
    for cell in function.__closure__ or ():
        if cell != types.CellType():  # not filled yet
            yield cell.cell_contents
    yield vars(function).get("__wrapped__")
    names = {name for code in _walk_code(function.__code__) for name in code.co_names}
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.FunctionType | type):
            yield value
        elif isinstance(value, types.ModuleType) and is_own_file(getattr(value, "__file__", None) or "<"):
            yield from (vars(value)[inner] for inner in names if isinstance(vars(value).get(inner), types.FunctionType))


def _walk_code(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _walk_code(constant)


@contextmanager
def override_globals(functions: list[types.FunctionType], table: Mapping[object, object]) -> Iterator[None]:
    """Make these functions use the table's values in place of its keys. For a builtin only calls are changed."""
    aliases = {id(original): f"_fairway_{next(_NUMBERS)}" for original in table}
    changed: list[tuple[types.FunctionType, types.CodeType]] = []
    named = dict(zip(aliases.values(), table.values(), strict=True))
    vars(builtins).update(named)
    try:
        for function in functions:
            code = replace_loads(function.__code__, function.__globals__, aliases)
            if code is not None:
                changed.append((function, function.__code__))
                function.__code__ = code
        yield
    finally:
        for function, before in changed:
            function.__code__ = before
        for alias in named:
            vars(builtins).pop(alias)


def replace_loads(
    code: types.CodeType, scope: Mapping[str, object], aliases: Mapping[int, str]
) -> types.CodeType | None:
    """Return the code with its loads of these objects (by their ids) replaced, or None if it loads none of them."""
    names, raw, before = list(code.co_names), bytearray(code.co_code), ""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL" and step.arg is not None and before != "EXTENDED_ARG":
            name, called = names[step.arg >> 1], step.arg & 1
            value = scope.get(name, vars(builtins).get(name))
            alias = aliases.get(id(value))
            if alias is not None and (called or isinstance(value, types.ModuleType)):
                if alias not in names:
                    names.append(alias)
                if names.index(alias) <= _MAX_NAME_INDEX:
                    raw[step.offset + 1] = names.index(alias) << 1 | called
        before = step.opname
    inner = [
        replace_loads(constant, scope, aliases) if isinstance(constant, types.CodeType) else None
        for constant in code.co_consts
    ]
    if bytes(raw) == code.co_code and not any(inner):
        return None
    constants = tuple(new or old for new, old in zip(inner, code.co_consts, strict=True))
    return code.replace(co_names=tuple(names), co_code=bytes(raw), co_consts=constants)
