"""Python's functions of numbers for rewritten code, in which a number taken out of a tensor is still a tensor.

Each function does what its builtin does for plain numbers, and the same with tensors for tensors. So one text works in
eager Python, in `torch.export` (where sizes are symbols) and in the body of an ONNX Loop (where the index is a tensor).
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

RuntimeValue: TypeAlias = Any
"""A value of the model's code, rewritten or not: a number, a symbolic size, a tensor, or any other object."""


class Unrewritable(RuntimeError):
    """Raised by rewritten code for which the rewrite is wrong. The proof then drops the candidate."""


class _Unbound:
    """The value of a name that Python has not bound yet."""


UNBOUND = _Unbound()
_Symbol = (torch.SymInt, torch.SymFloat, torch.SymBool)


def tensor(value: RuntimeValue, *args: RuntimeValue, **kwargs: RuntimeValue) -> RuntimeValue:
    """Return a tensor that keeps the size it was made from, so that `.item()` returns the size."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    rows = getattr(value, "tensor", None)
    if isinstance(rows, torch.Tensor):  # a list of numbers that a loop made
        return rows.to(**kwargs)
    made = torch.tensor(value, *args, **kwargs)
    if isinstance(value, torch.SymInt):
        made.fairway_size = value  # type: ignore[attr-defined]
    return made


def item(value: RuntimeValue) -> RuntimeValue:
    """Return `.item()` inside a loop or a choice, where the number stays a tensor."""
    size = getattr(value, "fairway_size", None)
    if size is not None:
        return size
    return value.reshape(()) if isinstance(value, torch.Tensor) else value


def tolist(value: RuntimeValue) -> RuntimeValue:
    return value if isinstance(value, torch.Tensor) else value.tolist()


def number(value: RuntimeValue) -> RuntimeValue:
    """Return `.item()` outside a loop: a number, or the symbol of one."""
    size = getattr(value, "fairway_size", None)
    return size if size is not None else value.item()


def inside(value: RuntimeValue) -> RuntimeValue:
    """Return a number for use inside a loop. If it was read from a tensor it stays one: Dynamo refuses its symbol."""
    unbacked = isinstance(value, torch.SymInt) and bool(free_unbacked_symbols(value))
    return as_tensor(value) if unbacked else value


def int_(value: RuntimeValue) -> RuntimeValue:
    value = item(value)
    if isinstance(value, torch.Tensor):
        return value.trunc().to(torch.int64) if value.is_floating_point() else value.to(torch.int64)
    return value if isinstance(value, torch.SymInt) else int(value)


def plain_int(value: RuntimeValue) -> RuntimeValue:
    """Return `int()` outside a loop. Symbols are kept, which `int` would fix at the example's size."""
    if isinstance(value, torch.Tensor):
        value = number(value)
    if isinstance(value, torch.SymInt):
        return value
    return math.trunc(value) if isinstance(value, torch.SymFloat) else int(value)


def float_(value: RuntimeValue) -> RuntimeValue:
    value = item(value)
    if isinstance(value, torch.Tensor):
        return value.to(torch.float64)
    return value if isinstance(value, torch.SymFloat) else float(value)


def bool_(value: RuntimeValue) -> RuntimeValue:
    return _to_bool(value.reshape(())) if isinstance(value, torch.Tensor) else bool(value)


def allclose(
    value: torch.Tensor, other: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> torch.Tensor:
    """Return `torch.allclose` as a tensor, which a graph can compute."""
    return torch.isclose(value, other, rtol, atol, equal_nan).all()


def equal(value: torch.Tensor, other: torch.Tensor) -> RuntimeValue:
    return (value == other).all() if value.shape == other.shape else False


def text(value: RuntimeValue) -> RuntimeValue:
    """Return `str(index)` as the key of a ModuleDict. A tensor is returned as it is, since the index is enough."""
    return value if isinstance(value, torch.Tensor) else str(value)


def astype(value: RuntimeValue, kind: RuntimeValue) -> RuntimeValue:
    if isinstance(value, (torch.Tensor, *_Symbol)) and kind in (int, "int", "int64"):
        return int_(value)
    return value.astype(kind) if hasattr(value, "astype") else kind(value)


def ceil(value: RuntimeValue) -> RuntimeValue:
    return torch.ceil(value).to(torch.int64) if isinstance(value, torch.Tensor) else math.ceil(value)


def floor(value: RuntimeValue) -> RuntimeValue:
    return torch.floor(value).to(torch.int64) if isinstance(value, torch.Tensor) else math.floor(value)


def abs_(value: RuntimeValue) -> RuntimeValue:
    return value.abs() if isinstance(value, torch.Tensor) else builtins.abs(value)


def _pick_extreme(
    values: tuple[RuntimeValue, ...],
    on_tensors: Callable[..., object],
    on_symbols: Callable[..., object],
    on_numbers: Callable[..., object],
) -> RuntimeValue:
    if len(values) == 1:
        return on_numbers(values[0])
    best = values[0]
    for value in values[1:]:
        if isinstance(best, torch.Tensor) or isinstance(value, torch.Tensor):
            best = on_tensors(as_tensor(best, value), as_tensor(value, best))
        elif isinstance(best, _Symbol) or isinstance(value, _Symbol):
            best = on_symbols(best, value)
        else:
            best = on_numbers(best, value)
    return best


def min_(*values: RuntimeValue, **options: RuntimeValue) -> RuntimeValue:
    if options:
        return builtins.min(*values, **options)
    return _pick_extreme(values, torch.minimum, torch.sym_min, builtins.min)


def max_(*values: RuntimeValue, **options: RuntimeValue) -> RuntimeValue:
    if options:
        return builtins.max(*values, **options)
    return _pick_extreme(values, torch.maximum, torch.sym_max, builtins.max)


def as_tensor(value: RuntimeValue, like: RuntimeValue = None) -> RuntimeValue:
    """Return a number, a symbol or a bool as a tensor without dims. Floats become float64."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (bool, torch.SymBool)):
        kind = torch.bool
    elif isinstance(value, (int, torch.SymInt)):
        kind = torch.int64
    else:
        kind = torch.float64
    if isinstance(like, torch.Tensor) and like.is_floating_point():
        kind = like.dtype
    device = like.device if isinstance(like, torch.Tensor) else None
    return torch.scalar_tensor(value, dtype=kind, device=device)


def _to_bool(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.bool)


def both(left: RuntimeValue, right: Callable[[], object]) -> RuntimeValue:
    """Return `left and right`."""
    if not isinstance(left, torch.Tensor):
        return left and right()
    other = right()
    return torch.logical_and(_to_bool(left), _to_bool(as_tensor(other)))


def any_of(left: RuntimeValue, right: Callable[[], object]) -> RuntimeValue:
    """Return `left or right`."""
    if not isinstance(left, torch.Tensor):
        return left or right()
    other = right()
    return torch.logical_or(_to_bool(left), _to_bool(as_tensor(other)))


def negate(value: RuntimeValue) -> RuntimeValue:
    return torch.logical_not(value) if isinstance(value, torch.Tensor) else not value


class Selectable:
    """A value of rewritten code that knows how to choose between itself and another of its kind."""

    def select(self, test: torch.Tensor, other: RuntimeValue) -> RuntimeValue:
        raise NotImplementedError


def select(test: torch.Tensor, yes: RuntimeValue, no: RuntimeValue) -> RuntimeValue:
    """Return `yes if test else no` for values already computed: tensors, numbers, tuples of them."""
    if isinstance(yes, (tuple, list)) and isinstance(no, (tuple, list)) and len(yes) == len(no):
        return type(yes)([select(test, a, b) for a, b in zip(yes, no, strict=True)])
    if no is UNBOUND or yes is no:
        return yes
    if isinstance(yes, dict) and isinstance(no, dict) and yes.keys() == no.keys():
        return {key: select(test, yes[key], no[key]) for key in yes}
    if yes is UNBOUND:
        return no
    if isinstance(yes, Selectable) and isinstance(no, Selectable):
        return yes.select(_to_bool(test), no)
    if not isinstance(yes, (torch.Tensor, int, float, *_Symbol)) or not isinstance(
        no, (torch.Tensor, int, float, *_Symbol)
    ):
        raise Unrewritable(f"a tensor's value decides between {type(yes).__name__} and {type(no).__name__}")
    yes, no = as_tensor(yes, no), as_tensor(no, yes)
    if yes.shape != no.shape and yes.dim() > 0 and no.dim() > 0:
        raise Unrewritable("the two sides of a branch give tensors of different shapes")
    return where(_to_bool(test), yes, no)


def where(test: torch.Tensor, yes: torch.Tensor, no: torch.Tensor) -> torch.Tensor:
    """Return `torch.where`. ONNX Runtime has no Where for bools."""
    if yes.dtype == no.dtype == torch.bool:
        return torch.logical_or(torch.logical_and(test, yes), torch.logical_and(torch.logical_not(test), no))
    return torch.where(test, yes, no)


def choose(test: RuntimeValue, yes: Callable[[], object], no: Callable[[], object]) -> RuntimeValue:
    """Return `yes() if test else no()`. Both sides are computed if the test is a tensor."""
    if isinstance(test, torch.Tensor):
        return select(test.reshape(()), yes(), no())
    return yes() if test else no()


def branch(
    test: RuntimeValue,
    yes: Callable[..., RuntimeValue],
    no: Callable[..., RuntimeValue],
    names: tuple[RuntimeValue, ...],
) -> RuntimeValue:
    """Run an `if` statement. Each side takes the values that it may change, and returns them."""
    if isinstance(test, torch.Tensor):
        test = test.reshape(())  # Python, too, asks for a tensor of one element
        return tuple(select(test, a, b) for a, b in zip(yes(*names), no(*names), strict=True))
    return yes(*names) if test else no(*names)


OPERATORS: dict[str, Callable[[RuntimeValue, RuntimeValue], RuntimeValue]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "//": operator.floordiv,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "@": operator.matmul,
    "%": operator.mod,
}
"""The functions of `out[i] += v` and the other augmented assignments, by sign."""
