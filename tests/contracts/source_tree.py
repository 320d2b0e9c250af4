"""The modules of src/fairway, their imports, and the layers they are in; shared by the tests of this folder."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("fairway.torch_internals",),
    ("fairway.diagnostics",),
    ("fairway.workers",),
    ("fairway.model",),
    ("fairway.record",),
    ("fairway.judge",),
    ("fairway.convert",),
    ("fairway.tune", "fairway.debug", "fairway.deploy", "fairway.testing"),
    ("fairway.api",),
    ("fairway.deploy.callbacks",),
    ("fairway.cli",),
    ("fairway.dropin",),
    ("fairway",),
)
"""From the ground up; the longest name that fits a module counts. A module imports its own layer and those below."""


@cache
def modules() -> dict[str, Path]:
    """Return the path of each module of Fairway, by dotted name."""
    paths = {}
    for path in sorted((SOURCE / "fairway").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text())


@cache
def imports(name: str) -> set[str]:
    """Return the modules of ours that this one imports, at its top or in a function, but not for types alone."""
    imported = set()
    for node in _walk_running_code(tree(name)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {_choose_module(f"{node.module}.{alias.name}", node.module) for alias in node.names}
    return {other for other in imported if other in modules() and other != name}


def _choose_module(long: str, short: str) -> str:
    return long if long in modules() else short


def _walk_running_code(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from _walk_running_code(child)


def layer(name: str) -> int:
    """Return the number of a module's layer; the lowest is 0."""
    return next(number for number, prefixes in enumerate(LAYERS) if package(name) in prefixes)


def package(name: str) -> str:
    """Return the longest name in LAYERS that a module is in: its package, or the module itself."""
    prefixes = [prefix for row in LAYERS for prefix in row]
    return max((prefix for prefix in prefixes if f"{name}.".startswith(f"{prefix}.")), key=len)


def reach(start: str, successors: Callable[[str], Iterable[str]]) -> set[str]:
    """Return everything that can be reached from `start` in one step or more."""
    seen: set[str] = set()
    left = [start]
    while left:
        new = set(successors(left.pop())) - seen
        seen |= new
        left += new
    return seen
