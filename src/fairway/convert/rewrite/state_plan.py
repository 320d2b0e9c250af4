"""Find the attributes that the modules of a model change and read while they run, and the methods that may do so."""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from fairway.convert.rewrite.call_graph import find_method, is_model_code, read_source
from fairway.convert.rewrite.state_runtime import CALLS, PATH, STATES, run_sequence

_SETUP_METHODS = (
    "__init__",
    "__setattr__",
    "__getattr__",
    "__setstate__",
    "extra_repr",
    "train",
    "_load_from_state_dict",
)
"""Methods that a loop never calls."""


@dataclass
class StatePlan:
    """The attributes of a model that its methods both change and read, and the modules with such attributes."""

    model: torch.nn.Module
    names: dict[type, frozenset[str]] = field(default_factory=dict)
    """By class: the attributes that its methods write."""
    carried: frozenset[str] = frozenset()
    """The names of attributes of any class that are written by one method and read by some other or the same."""
    written: frozenset[str] = frozenset()
    """The names of all attributes that are written."""
    lifted: dict[types.FunctionType, object] = field(default_factory=dict)
    """Methods in the form that takes and returns the state."""
    refused: dict[str, str] = field(default_factory=dict)
    """By name: why a method has no such form. It fails if a loop calls it and it changes an attribute."""

    def is_touched(self, module: object) -> bool:
        """Return whether calling a module may change an attribute that is carried."""
        return isinstance(module, torch.nn.Module) and any(self._list_names(child) for child in module.modules())

    def _list_names(self, module: torch.nn.Module) -> frozenset[str]:
        return self.names.get(type(module), frozenset()) & self.carried

    @contextlib.contextmanager
    def install(self) -> Iterator[None]:
        """Give the modules their paths, the lifted forms of their methods, and the list of their attributes."""
        touched = [(path, module) for path, module in self.model.named_modules() if self.is_touched(module)]
        try:
            for path, module in touched:
                module.__dict__[PATH] = path
                module.__dict__[CALLS] = self._list_calls(module)
                children = [child for child in module.modules() if self._list_names(child)]
                module.__dict__[STATES] = [(child, tuple(sorted(self._list_names(child)))) for child in children]
            yield
        finally:
            for _, module in touched:
                for name in (PATH, CALLS, STATES):
                    module.__dict__.pop(name, None)

    def _list_calls(self, module: torch.nn.Module) -> dict[str, object]:
        calls: dict[str, object] = {}
        for name in _list_methods(type(module)):
            function = find_method(module, name)
            if function in self.lifted:
                calls[name] = self.lifted[function]
        if type(module) is torch.nn.Sequential:
            calls["forward"] = run_sequence
        return calls


def plan_state(model: torch.nn.Module) -> StatePlan:
    """Read the methods of all modules' classes, and note the attributes that they write and read."""
    plan = StatePlan(model)
    read: set[str] = set()
    for kind in {type(module) for module in model.modules()}:
        stored: set[str] = set()
        for name in _list_methods(kind):
            source = read_source(_get_method(kind, name)) if is_model_code(_get_method(kind, name)) else None
            if source is None or not source.tree.args.args:
                continue
            own = source.tree.args.args[0].arg
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    read.add(node.attr)
            stored |= _find_stored_attributes(source.tree, own)
            read |= _find_augmented_attributes(source.tree)
        if stored:
            plan.names[kind] = frozenset(stored)
    plan.written = frozenset().union(*plan.names.values())
    plan.carried = plan.written & read
    return plan


def list_touched_methods(plan: StatePlan) -> Iterator[tuple[types.FunctionType, torch.nn.Module]]:
    """Yield the methods of modules that may change the state, each with a module that has it."""
    seen: set[types.FunctionType] = set()
    for module in plan.model.modules():
        if not plan.is_touched(module):
            continue
        for name in _list_methods(type(module)):
            function = find_method(module, name)
            if function not in seen and is_model_code(function) and read_source(function) is not None:
                seen.add(function)
                yield function, module


def _list_methods(kind: type) -> list[str]:
    names: dict[str, None] = {}
    for base in kind.__mro__:
        if base not in (torch.nn.Module, object):
            names |= dict.fromkeys(name for name in vars(base) if name not in _SETUP_METHODS)
    return [name for name in names if isinstance(_get_method(kind, name), types.FunctionType)]


def _get_method(kind: type, name: str) -> object:
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None


def _find_stored_attributes(tree: ast.AST, own: str) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            node = node.value
        elif not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)):
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own:
            names.add(node.attr)
    return names


def _find_augmented_attributes(tree: ast.AST) -> set[str]:
    targets = [node.target for node in ast.walk(tree) if isinstance(node, ast.AugAssign)]
    return {target.attr for target in targets if isinstance(target, ast.Attribute)}
