"""Python's functions of numbers, for sizes that are not known yet.

`int`, `float`, `len` and the functions of `math` ask a size for its number in C code. While torch.export captures a
model, that gives the example's number and fixes the dim. The functions here keep such a size symbolic, and call the
original for everything else. A logarithm has no symbolic form in torch, so it is computed by a tensor without dims.
"""

from __future__ import annotations

import builtins
import math
import types
from collections.abc import Callable, Iterator, Mapping

import numpy
import torch

from fairway.convert.rewrite.scalars import RuntimeValue

UseSink = Callable[[], object]
"""Called whenever a size was kept that the original would have fixed."""

_TENSOR_FUNCTIONS = ("cos", "exp", "expm1", "log", "log10", "log1p", "log2", "sin", "tanh")
"""Functions of `math` without a symbolic form, which torch has for tensors under the same name."""


def is_symbolic(value: object) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat)


class SizeNumbers:
    """Replacements of builtins, one method for each builtin of that name. Each reports its use."""

    def __init__(self, on_use: UseSink) -> None:
        self._on_use = on_use

    def _get_symbol(self, value: object) -> object:
        """Return the symbolic number behind a value, or None if it has none."""
        if isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype != torch.bool:
            value = value.item()
        if not is_symbolic(value):
            return None
        self._on_use()
        return value

    def int(self, *args: RuntimeValue, **kwargs: RuntimeValue) -> RuntimeValue:
        kept = self._get_symbol(args[0]) if len(args) == 1 and not kwargs else None
        return builtins.int(*args, **kwargs) if kept is None else torch.sym_int(kept)  # type: ignore[no-untyped-call]

    def float(self, *args: RuntimeValue) -> RuntimeValue:
        kept = self._get_symbol(args[0]) if len(args) == 1 else None
        return builtins.float(*args) if kept is None else torch.sym_float(kept)  # type: ignore[no-untyped-call]

    def len(self, value: RuntimeValue, /) -> RuntimeValue:
        if isinstance(value, torch.Tensor) and value.dim() and is_symbolic(value.shape[0]):
            self._on_use()
            return value.shape[0]
        return builtins.len(value)

    def divmod(self, left: RuntimeValue, right: RuntimeValue, /) -> RuntimeValue:
        if is_symbolic(left) or is_symbolic(right):
            self._on_use()
            return left // right, left % right
        return builtins.divmod(left, right)

    def map(self, function: RuntimeValue, *items: RuntimeValue) -> Iterator[RuntimeValue]:
        replacements = {int: self.int, float: self.float, len: self.len}
        return builtins.map(replacements.get(function) or function, *items)

    def isinstance(self, value: RuntimeValue, kind: RuntimeValue, /) -> bool:
        """Return an `isinstance` for which a size that was kept symbolic has the type that it replaces."""
        if builtins.isinstance(value, torch.SymInt):
            return builtins.isinstance(value, kind) or issubclass(int, kind)
        if builtins.isinstance(value, torch.SymFloat):
            return builtins.isinstance(value, kind) or issubclass(float, kind)
        return builtins.isinstance(value, kind)

    def sqrt(self, value: RuntimeValue, /) -> RuntimeValue:
        return value**0.5 if self._get_symbol(value) is not None else math.sqrt(value)

    def by_tensor(self, name: str, plain: Callable[..., object]) -> Callable[..., object]:
        """Return the function of this name, which computes with a float64 tensor if it gets a size."""
        through: Callable[[torch.Tensor], torch.Tensor] = getattr(torch, name)

        def compute(*args: RuntimeValue, **kwargs: RuntimeValue) -> RuntimeValue:
            if kwargs or not any(is_symbolic(arg) for arg in args):
                return plain(*args, **kwargs)
            self._on_use()
            results = [through(torch.scalar_tensor(arg, dtype=torch.float64)) for arg in args]
            return results[0] if builtins.len(results) == 1 else results[0] / results[1]  # math.log takes a base

        return compute

    def make_table(self) -> Mapping[object, object]:
        """Return the replacements of builtins, of functions of `math`, and of the modules `math` and `numpy`."""
        functions: dict[object, object] = {
            getattr(builtins, name): getattr(self, name)
            for name in ("int", "float", "len", "divmod", "map", "isinstance")
        }
        ours = {"sqrt": self.sqrt, **{name: self.by_tensor(name, getattr(math, name)) for name in _TENSOR_FUNCTIONS}}
        functions |= {getattr(math, name): function for name, function in ours.items()}
        functions[math] = _copy_module_with(math, ours)
        theirs = {name: self._make_for_numpy(name, function) for name, function in ours.items()}
        rounding = {name: self._make_for_numpy(name, getattr(math, name)) for name in ("ceil", "floor")}
        functions[numpy] = _copy_module_with(numpy, {**theirs, **rounding})
        return functions

    def _make_for_numpy(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        plain = getattr(numpy, name)

        def compute(*args: object, **kwargs: object) -> object:
            kept = builtins.len(args) == 1 and not kwargs and is_symbolic(args[0])
            return function(*args) if kept else plain(*args, **kwargs)

        return compute


def _copy_module_with(module: types.ModuleType, functions: Mapping[str, object]) -> types.ModuleType:
    """Return a copy of the module with some of its functions replaced."""
    copy = types.ModuleType(module.__name__)
    vars(copy).update(vars(module))
    vars(copy).update(functions)
    return copy
