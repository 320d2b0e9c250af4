"""Trace each expression back to whether it depends on a tensor's size, on its values, or on neither.

The source is read, and the live module distinguishes a submodule from a number. If a dependence is overlooked, a
diagnosis is missing. If one is assumed that does not exist, there is a false alarm. So parameters and buffers of the
module count as constants, and a list written out in the source counts as having a fixed length.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

import torch

from fairway.convert.rewrite.call_graph import MISSING, look_up, split_attributes

Flags = frozenset[str]
NONE: Flags = frozenset()
TENSOR: Flags = frozenset({"tensor"})
SIZE: Flags = frozenset({"size"})
VALUE: Flags = frozenset({"value"})
SEQUENCE: Flags = frozenset({"sequence"})
GROWING: Flags = frozenset({"sequence", "growing"})
"""A sequence of tensors whose length follows a tensor's size."""

_STATIC_ATTRIBUTES = {"ndim", "dtype", "device", "layout", "requires_grad", "is_cuda"}
_STATIC_METHODS = {"dim", "ndimension", "is_floating_point", "is_complex", "get_device", "is_contiguous", "type"}
_SIZE_METHODS = {"size", "numel", "nelement", "stride"}
_VALUE_METHODS = {"item", "tolist", "numpy"}
_NUMBERS = {"int", "float", "bool", "round", "str", "repr"}
_PASSING = {
    "min",
    "max",
    "abs",
    "sum",
    "divmod",
    "pow",
    "range",
    "enumerate",
    "zip",
    "reversed",
    "list",
    "tuple",
    "sorted",
    "map",
    "filter",
    "set",
    "iter",
    "next",
}
_QUESTIONS = {"isinstance", "hasattr", "callable", "type", "id", "print"}
_WRAPPING = {"tensor", "as_tensor", "scalar_tensor"}


def is_module_choice(value: object) -> bool:
    """Return whether this is a collection of modules to pick from."""
    if isinstance(value, (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)):
        return True
    items = list(value.values()) if isinstance(value, dict) else value
    return isinstance(items, (list, tuple)) and bool(items) and all(isinstance(m, torch.nn.Module) for m in items)


def union(flags: Iterable[Flags]) -> Flags:
    return frozenset().union(*flags)


class Flow:
    """The flags of expressions, from the flags of the local names and the live objects of the free names."""

    def __init__(self, scope: dict[str, object]) -> None:
        self.scope = scope
        self.follow_call: Callable[[ast.Call], Flags] = self.read_call
        """Reads a call. A reader of functions replaces it, to read the user's own functions too."""
        self.names: dict[str, Flags] = {}
        self.origin: dict[str, str] = {}
        self.taken_at: dict[str, int] = {}
        """The line at which a name's size or value left its tensor."""

    def live(self, node: ast.expr) -> object:
        """Return the live object of a dotted name that no assignment hides, or `MISSING`."""
        chain = split_attributes(node)
        if chain is None or chain[0] in self.names:
            return MISSING
        return look_up(chain, self.scope)

    def assign(self, target: ast.expr, flags: Flags, source: ast.expr | None = None) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = flags
            if source is not None and flags & {"size", "value"}:
                self.origin[target.id] = ast.unparse(source)
                self.taken_at[target.id] = source.lineno
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = source.elts if isinstance(source, (ast.Tuple, ast.List)) else []
            item_flags = TENSOR if "sequence" in flags else flags
            for place, item in enumerate(target.elts):
                if len(parts) == len(target.elts):
                    self.assign(item, self.of(parts[place]), parts[place])
                else:
                    self.assign(item, item_flags, source)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, flags, source)
        elif isinstance(target, (ast.Subscript, ast.Attribute)) and isinstance(target.value, ast.Name):
            self.names[target.value.id] = self.names.get(target.value.id, NONE) | (flags & TENSOR)

    def of(self, node: ast.expr | None) -> Flags:
        """Return the flags of one expression. An unknown kind of node has those of its parts."""
        if node is None:
            return NONE
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            flags: Flags = method(node)
            return flags
        return union(self.of(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))

    def _name(self, node: ast.Name) -> Flags:
        return self.names.get(node.id, NONE)

    def _lambda(self, node: ast.Lambda) -> Flags:
        return NONE

    def _attribute(self, node: ast.Attribute) -> Flags:
        base = self.of(node.value)
        if "tensor" not in base:
            return base
        if node.attr == "shape":
            return SIZE
        return NONE if node.attr in _STATIC_ATTRIBUTES else base

    def _subscript(self, node: ast.Subscript) -> Flags:
        base = self.of(node.value)
        if "sequence" in base:
            return TENSOR
        if base:
            return base
        index = self.of(node.slice)
        return TENSOR if "tensor" in index else index

    def _compare(self, node: ast.Compare) -> Flags:
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return NONE
        if all(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            return self.of(node.left)
        return union(self.of(part) for part in (node.left, *node.comparators)) - SEQUENCE

    def _list(self, node: ast.List | ast.Tuple) -> Flags:
        flags = union(self.of(item) for item in node.elts)
        return SEQUENCE | (flags - TENSOR) if "tensor" in flags else flags

    _tuple = _list

    def _dict(self, node: ast.Dict) -> Flags:
        return SEQUENCE if "tensor" in union(self.of(value) for value in node.values) else NONE

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Flags:
        hidden = dict(self.names)
        growing = False
        for generator in node.generators:
            growing |= bool(self.bounds(generator.iter))
            self.assign(generator.target, self.items(generator.iter))
        flags = self.of(node.elt)
        self.names = hidden
        if not flags & (TENSOR | SEQUENCE):
            return flags
        return GROWING if growing else SEQUENCE

    _generatorexp = _listcomp
    _setcomp = _listcomp

    def _call(self, node: ast.Call) -> Flags:
        return self.follow_call(node)

    def read_call(self, node: ast.Call) -> Flags:
        """Return the flags of a call's result, from those of its arguments."""
        arguments = union(self.of(a) for a in (*node.args, *(k.value for k in node.keywords)))
        if isinstance(node.func, ast.Name) and node.func.id not in self.names:
            known = self._builtin(node.func.id, arguments)
            if known is not None:
                return known
        if isinstance(node.func, ast.Attribute):
            known = self._method(node.func, node, arguments)
            if known is not None:
                return known
        through = arguments | self.of(node.func)
        return TENSOR if through & (TENSOR | SEQUENCE) else through

    def _builtin(self, name: str, arguments: Flags) -> Flags | None:
        if name in _QUESTIONS:
            return NONE
        if name == "len":
            return SIZE if arguments & {"tensor", "growing"} else arguments - SEQUENCE
        if name in _NUMBERS:
            return VALUE if "tensor" in arguments else arguments
        return arguments if name in _PASSING else None

    def _method(self, function: ast.Attribute, node: ast.Call, arguments: Flags) -> Flags | None:
        base = self.of(function.value)
        owner = self.live(function.value)
        if owner is torch or owner is torch.nn.functional:
            return self._torch_call(function.attr, node, arguments)
        if getattr(owner, "__name__", "") in ("math", "numpy"):
            return VALUE if "tensor" in arguments else arguments
        if not base:
            return None
        if function.attr in _STATIC_METHODS:
            return NONE
        if function.attr in _VALUE_METHODS:
            return VALUE if "tensor" in base else base
        if function.attr in _SIZE_METHODS and "tensor" in base:
            return SIZE
        if function.attr in ("items", "values", "keys"):
            return SEQUENCE
        split = self._split(function.attr, node.args)
        return split if split is not None and "tensor" in base else None

    def _torch_call(self, name: str, node: ast.Call, arguments: Flags) -> Flags:
        if name.startswith("is_"):
            return NONE
        if name in _WRAPPING and "tensor" not in arguments:
            # A tensor made from a size is still a size, and so is the number that is taken out of it.
            return arguments
        if name == "numel" and "tensor" in arguments:
            return SIZE
        split = self._split(name, node.args[1:])
        if split is not None and "tensor" in arguments:
            return split
        return TENSOR if arguments else NONE

    def _split(self, name: str, arguments: list[ast.expr]) -> Flags | None:
        if name in ("unbind", "split"):
            fixed = bool(arguments) and isinstance(arguments[0], (ast.List, ast.Tuple))
            return SEQUENCE if fixed else GROWING
        if name in ("chunk", "tensor_split"):
            return GROWING if arguments and self.of(arguments[0]) else SEQUENCE
        return None

    def items(self, node: ast.expr) -> Flags:
        """Return the flags of the items of an iterable."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "range":
                return self.of(node) & (SIZE | VALUE)
            if node.func.id in ("enumerate", "zip", "reversed", "list", "tuple", "sorted"):
                return union(self.items(argument) for argument in node.args)
        flags = self.of(node)
        return TENSOR if flags & (TENSOR | SEQUENCE) else flags

    def bounds(self, node: ast.expr) -> str:
        """Describe the tensor's size or value that bounds a loop over this expression; empty if none does."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "range":
                dependent = [argument for argument in node.args if self.of(argument)]
                return " and ".join(self.describe(argument) for argument in dependent)
            if node.func.id in ("enumerate", "zip", "reversed", "list", "tuple", "sorted"):
                return " and ".join(filter(None, (self.bounds(argument) for argument in node.args)))
        flags = self.of(node)
        if "tensor" in flags:
            return f"the rows of {ast.unparse(node)}"
        if "growing" in flags:
            return f"the length of {ast.unparse(node)}, which follows a tensor's size"
        return self.describe(node) if "value" in flags else ""

    def describe(self, node: ast.expr) -> str:
        """Describe an expression with the origin of its size or value, such as `the size n = x.shape[1]`."""
        flags, text = self.of(node), ast.unparse(node)
        kind = "the value" if flags & (VALUE | TENSOR) else "the size"
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in self.origin]
        if isinstance(node, ast.Name) and names:
            return f"{kind} {text} = {self.origin[text]}"
        origins = ", ".join(f"{name} = {self.origin[name]}" for name in dict.fromkeys(names))
        return f"{kind} {text}" + (f", where {origins}" if origins else "")
