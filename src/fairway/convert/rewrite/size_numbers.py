"""Python's functions of numbers, for sizes that are not known yet.

`int`, `float`, `len` and the functions of `math` ask a size for its number in C code. While torch.export captures a
model that answers with the example's number and fixes the dim. The functions here keep such a size symbolic, and hand
everything else to the original. A logarithm has no symbolic form in torch, so it is computed by a tensor without dims.
"""

from __future__ import annotations

import builtins
import math
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch

Tell = Callable[[], None]
"""Called whenever a size was kept that the original would have fixed."""

_BY_TENSOR = ("cos", "exp", "expm1", "log", "log10", "log1p", "log2", "sin", "tanh")
"""Functions of `math` that torch has under the same name, and that have no symbolic form."""


def is_symbolic(value: Any) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat)


class SizeNumbers:
    """The functions, each telling of its use. A bound method stands for the builtin of its name."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def _open(self, value: Any) -> Any:
        """The symbolic number behind a value, or None if it has none."""
        if isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype != torch.bool:
            value = value.item()
        if not is_symbolic(value):
            return None
        self._tell()
        return value

    def int(self, *args: Any, **kwargs: Any) -> Any:
        kept = self._open(args[0]) if len(args) == 1 and not kwargs else None
        return builtins.int(*args, **kwargs) if kept is None else torch.sym_int(kept)  # type: ignore[no-untyped-call]

    def float(self, *args: Any) -> Any:
        kept = self._open(args[0]) if len(args) == 1 else None
        return builtins.float(*args) if kept is None else torch.sym_float(kept)  # type: ignore[no-untyped-call]

    def len(self, value: Any, /) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and is_symbolic(value.shape[0]):
            self._tell()
            return value.shape[0]
        return builtins.len(value)

    def divmod(self, left: Any, right: Any, /) -> Any:
        if is_symbolic(left) or is_symbolic(right):
            self._tell()
            return left // right, left % right
        return builtins.divmod(left, right)

    def map(self, function: Any, *items: Any) -> Iterator[Any]:
        return builtins.map({int: self.int, float: self.float, len: self.len}.get(function, function), *items)

    def isinstance(self, value: Any, kind: Any, /) -> bool:
        """A size that was kept is the whole number, or the fraction, that the original would have made of it."""
        if builtins.isinstance(value, torch.SymInt):
            return builtins.isinstance(value, kind) or issubclass(int, kind)
        if builtins.isinstance(value, torch.SymFloat):
            return builtins.isinstance(value, kind) or issubclass(float, kind)
        return builtins.isinstance(value, kind)

    def sqrt(self, value: Any, /) -> Any:
        return value**0.5 if self._open(value) is not None else math.sqrt(value)

    def by_tensor(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        """The function of this name, computed by a tensor of one float64 where it is given a size."""
        through: Callable[[torch.Tensor], torch.Tensor] = getattr(torch, name)

        def compute(*args: Any, **kwargs: Any) -> Any:
            if kwargs or not any(is_symbolic(arg) for arg in args):
                return plain(*args, **kwargs)
            self._tell()
            found = [through(torch.scalar_tensor(arg, dtype=torch.float64)) for arg in args]
            return found[0] if builtins.len(found) == 1 else found[0] / found[1]  # math.log takes a base

        return compute

    def table(self) -> Mapping[Any, Any]:
        """What stands for each builtin, for each function of `math`, and for the modules `math` and `numpy`."""
        functions: dict[Any, Any] = {
            getattr(builtins, name): getattr(self, name)
            for name in ("int", "float", "len", "divmod", "map", "isinstance")
        }
        ours = {"sqrt": self.sqrt, **{name: self.by_tensor(name, getattr(math, name)) for name in _BY_TENSOR}}
        functions |= {getattr(math, name): function for name, function in ours.items()}
        functions[math] = _module_with(math, ours)
        theirs = {name: self._of_numpy(name, function) for name, function in ours.items()}
        rounding = {name: self._of_numpy(name, getattr(math, name)) for name in ("ceil", "floor")}
        functions[numpy] = _module_with(numpy, {**theirs, **rounding})
        return functions

    def _of_numpy(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        plain = getattr(numpy, name)

        def compute(*args: Any, **kwargs: Any) -> Any:
            kept = builtins.len(args) == 1 and not kwargs and is_symbolic(args[0])
            return function(*args) if kept else plain(*args, **kwargs)

        return compute


def _module_with(module: types.ModuleType, functions: Mapping[str, Any]) -> types.ModuleType:
    """A copy of the module's names with some of them replaced."""
    copy = types.ModuleType(module.__name__)
    vars(copy).update(vars(module))
    vars(copy).update(functions)
    return copy
