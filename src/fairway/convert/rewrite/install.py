"""Put rewritten functions in the place of the originals, with the same globals and closure and readable source."""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
import types
from collections.abc import Iterator

import torch

from fairway.convert.rewrite.call_graph import collect_visible_names, unwrap_function
from fairway.convert.rewrite.scalars import RuntimeValue

FILE_MARK = "<fairway: "


def compile_function(
    tree: ast.FunctionDef, original: types.FunctionType, extra: dict[str, object], defaults: bool = True
) -> tuple[object, str]:
    """Return the function that the tree describes, and its text. `extra` are names that it sees in addition."""
    free = {
        name: value for name, value in collect_visible_names(original).items() if name in original.__code__.co_freevars
    }
    given = {**free, **extra}
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in given], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    outer = ast.FunctionDef("_fairway", arguments, [tree, ast.Return(ast.Name(tree.name, ast.Load()))], [])
    text = ast.unparse(ast.fix_missing_locations(ast.Module([outer], [])))
    file = f"{FILE_MARK}{original.__qualname__} of {original.__module__} #{len(linecache.cache)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module_code = compile(text, file, "exec", dont_inherit=True)
    code = next(c for c in module_code.co_consts if isinstance(c, types.CodeType) and c.co_name == "_fairway")
    made = types.FunctionType(code, original.__globals__)(**given)
    inner = unwrap_function(made)
    if isinstance(inner, types.FunctionType):
        if defaults:
            inner.__defaults__, inner.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
        inner.__qualname__, inner.__module__ = original.__qualname__, original.__module__
    return made, ast.unparse(tree)


@contextlib.contextmanager
def install_functions(replacements: dict[types.FunctionType, RuntimeValue], model: torch.nn.Module) -> Iterator[None]:
    """Put each replacement wherever the original is: on classes, on instances, and in modules' globals."""
    with contextlib.ExitStack() as undo:
        for holder, name in list(_find_places(replacements, model)):
            old = holder.__dict__[name]
            new = replacements[unwrap_function(old)]
            if isinstance(holder, torch.nn.Module) and hasattr(old, "__self__"):
                new = types.MethodType(new, old.__self__)
            _put(holder, name, new)
            undo.callback(_put, holder, name, old)
        yield


def _put(holder: object, name: str, value: object) -> None:
    if isinstance(holder, torch.nn.Module):
        holder.__dict__[name] = value
    else:
        setattr(holder, name, value)


def _find_places(
    replacements: dict[types.FunctionType, object], model: torch.nn.Module
) -> Iterator[tuple[object, str]]:
    modules = list(model.modules())
    classes = {base for module in modules for base in type(module).__mro__ if base is not object}
    for holder in (*modules, *classes, *list(sys.modules.values())):
        for name, value in list(getattr(holder, "__dict__", {}).items()):
            # By type(), since isinstance() runs the properties of lazy and deprecated module attributes.
            if type(value) in (types.FunctionType, types.MethodType, staticmethod, classmethod):
                function = unwrap_function(value)
                if isinstance(function, types.FunctionType) and function in replacements:
                    yield holder, name
