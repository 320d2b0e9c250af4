"""Find the functions of a model by following calls from each module's `forward`, without running them.

They are the user's own, and those of libraries of models such as transformers, never torch's.
"""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
import textwrap
import types
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from fairway.convert.rewrite.scalars import RuntimeValue
from fairway.torch_internals import module_buffers, module_children, module_parameters


def _resolve_paths(*paths: str | Path) -> tuple[str, ...]:
    return tuple(str(Path(path).resolve()) for path in paths)


_PLACES = sysconfig.get_paths()
_INSTALLED = _resolve_paths(_PLACES["purelib"], _PLACES["platlib"])
_STANDARD = _resolve_paths(_PLACES["stdlib"])
_NEVER = _resolve_paths(Path(torch.__file__).parent, Path(__file__).parents[2])
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class FunctionSource:
    """One function as text and tree. Line numbers in the tree are those of the user's file."""

    function: types.FunctionType
    file: str
    tree: ast.FunctionDef

    def line(self, number: int) -> str:
        return self.text(number).strip()

    def text(self, number: int) -> str:
        """Return a line of the file with its indentation."""
        return _read_lines(self.file, self.function)[number - 1]


@cache
def _read_lines(file: str, function: types.FunctionType) -> list[str]:
    lines, start = inspect.getsourcelines(function)
    return [""] * (start - 1) + lines


def is_model_code(function: RuntimeValue) -> bool:
    """Return whether this is a plain Python function outside torch, the standard library and Fairway itself.

    Of an installed package only the files that define layers count. A loop in its helpers does not belong to the model.
    """
    if not isinstance(function, types.FunctionType):
        return False
    file = function.__code__.co_filename
    if file.startswith("<fairway: ") or _is_within(file, _NEVER):
        return False
    if "site-packages" in file or _is_within(file, _INSTALLED):
        return _defines_layers(function.__module__)
    return not _is_within(file, _STANDARD)


@cache
def _is_within(file: str, roots: tuple[str, ...]) -> bool:
    path = str(Path(file).resolve())
    return any(path.startswith(root + "/") for root in roots)


@cache
def _defines_layers(name: str) -> bool:
    values = vars(sys.modules.get(name, types)).values()
    return any(isinstance(v, type) and issubclass(v, torch.nn.Module) and v.__module__ == name for v in values)


@cache
def read_source(function: types.FunctionType) -> FunctionSource | None:
    """Return a function's source; None if there is no text, or if the text is a lambda in the middle of a line."""
    try:
        lines, start = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    node = tree.body[0] if tree.body else None
    if not isinstance(node, ast.FunctionDef):
        return None
    ast.increment_lineno(tree, start - 1)
    return FunctionSource(function, inspect.getsourcefile(function) or function.__code__.co_filename, node)


def unwrap_function(function: RuntimeValue) -> RuntimeValue:
    """Return the function behind a bound method, a static method or a class method."""
    function = getattr(function, "__func__", function)
    return inspect.unwrap(function) if isinstance(function, types.FunctionType) else function


def find_method(module: torch.nn.Module, name: str) -> RuntimeValue:
    """Return the function that `self.name(...)` runs, or None."""
    own = module.__dict__.get(name)
    return unwrap_function(own if own is not None else inspect.getattr_static(type(module), name, None))


def collect_visible_names(function: types.FunctionType) -> dict[str, RuntimeValue]:
    """Return the values of the function's free names: its globals, and its closure, which hides them."""
    closure = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not filled yet: a function that refers to itself while being defined
            continue
    return {**function.__globals__, **closure}


def split_attributes(node: ast.expr) -> tuple[str, ...] | None:
    """Return `a.b.c` as ("a", "b", "c"), and None for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return (node.id, *reversed(names))


MISSING = object()


def look_up(chain: tuple[str, ...], scope: dict[str, RuntimeValue]) -> RuntimeValue:
    """Return the live object of a dotted name, or `MISSING`. Attributes are read without running properties."""
    value = scope.get(chain[0], MISSING)
    for name in chain[1:]:
        if value is MISSING:
            return MISSING
        if isinstance(value, torch.nn.Module):
            value = _get_module_attribute(value, name)
        else:
            value = inspect.getattr_static(value, name, MISSING)
            value = value.__func__ if isinstance(value, staticmethod) else value
    return value


def _get_module_attribute(module: torch.nn.Module, name: str) -> RuntimeValue:
    for store in (module.__dict__, module_parameters(module), module_buffers(module), module_children(module)):
        if name in store:
            return store[name]
    return inspect.getattr_static(type(module), name, MISSING)
