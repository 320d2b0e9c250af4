"""In rewritten code a number taken out of a tensor is still a tensor: these are Python's own verbs, for both.

Each function does what its builtin does when it is handed plain numbers, and the tensor counterpart otherwise. So one
text serves eager Python, `torch.export` (where sizes are symbols) and the body of an ONNX Loop (where the index is a
tensor).
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols


class Unrewritable(RuntimeError):
    """Raised by rewritten code where the rewrite does not hold; the proof then drops the candidate."""


class _Unbound:
    """Stands for a name that Python has not bound yet."""


UNBOUND = _Unbound()
_Symbol = (torch.SymInt, torch.SymFloat, torch.SymBool)


def tensor(value: Any, *args: Any, **kwargs: Any) -> Any:
    """A tensor that remembers the size it was made from, so that `.item()` gives the size back."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    made = torch.tensor(value, *args, **kwargs)
    if isinstance(value, torch.SymInt):
        made.fairway_size = value  # type: ignore[attr-defined]
    return made


def item(value: Any) -> Any:
    """`.item()` inside a loop or a choice: the number stays a tensor."""
    size = getattr(value, "fairway_size", None)
    if size is not None:
        return size
    return value.reshape(()) if isinstance(value, torch.Tensor) else value


def tolist(value: Any) -> Any:
    return value if isinstance(value, torch.Tensor) else value.tolist()


def number(value: Any) -> Any:
    """`.item()` outside a loop: a number again, or the symbol of one."""
    size = getattr(value, "fairway_size", None)
    return size if size is not None else value.item()


def inside(value: Any) -> Any:
    """A number for use inside a loop; one taken out of a tensor as a tensor, as Dynamo refuses its symbol there."""
    unbacked = isinstance(value, torch.SymInt) and bool(free_unbacked_symbols(value))
    return as_tensor(value) if unbacked else value


def int_(value: Any) -> Any:
    value = item(value)
    if isinstance(value, torch.Tensor):
        return value.trunc().to(torch.int64) if value.is_floating_point() else value.to(torch.int64)
    return value if isinstance(value, torch.SymInt) else int(value)


def whole(value: Any) -> Any:
    """`int()` outside a loop: keeps symbols, which `int` would pin to the example's size."""
    if isinstance(value, torch.Tensor):
        value = number(value)
    if isinstance(value, torch.SymInt):
        return value
    return math.trunc(value) if isinstance(value, torch.SymFloat) else int(value)


def float_(value: Any) -> Any:
    value = item(value)
    if isinstance(value, torch.Tensor):
        return value.to(torch.float64)
    return value if isinstance(value, torch.SymFloat) else float(value)


def text(value: Any) -> Any:
    """`str(index)` as the key of a ModuleDict: the index itself is enough to find the module."""
    return value if isinstance(value, torch.Tensor) else str(value)


def astype(value: Any, kind: Any) -> Any:
    if isinstance(value, (torch.Tensor, *_Symbol)) and kind in (int, "int", "int64"):
        return int_(value)
    return value.astype(kind) if hasattr(value, "astype") else kind(value)


def ceil(value: Any) -> Any:
    return torch.ceil(value).to(torch.int64) if isinstance(value, torch.Tensor) else math.ceil(value)


def floor(value: Any) -> Any:
    return torch.floor(value).to(torch.int64) if isinstance(value, torch.Tensor) else math.floor(value)


def abs_(value: Any) -> Any:
    return value.abs() if isinstance(value, torch.Tensor) else builtins.abs(value)


def _extreme(
    values: tuple[Any, ...],
    on_tensors: Callable[..., Any],
    on_symbols: Callable[..., Any],
    on_numbers: Callable[..., Any],
) -> Any:
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


def min_(*values: Any, **options: Any) -> Any:
    if options:
        return builtins.min(*values, **options)
    return _extreme(values, torch.minimum, torch.sym_min, builtins.min)


def max_(*values: Any, **options: Any) -> Any:
    if options:
        return builtins.max(*values, **options)
    return _extreme(values, torch.maximum, torch.sym_max, builtins.max)


def as_tensor(value: Any, like: Any = None) -> Any:
    """A number, a symbol or a bool as a tensor without dimensions. Floats are kept in full."""
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


def _truth(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.bool)


def both(left: Any, right: Callable[[], Any]) -> Any:
    """`left and right`."""
    if not isinstance(left, torch.Tensor):
        return left and right()
    other = right()
    return torch.logical_and(_truth(left), _truth(as_tensor(other)))


def any_of(left: Any, right: Callable[[], Any]) -> Any:
    """`left or right`."""
    if not isinstance(left, torch.Tensor):
        return left or right()
    other = right()
    return torch.logical_or(_truth(left), _truth(as_tensor(other)))


def negate(value: Any) -> Any:
    return torch.logical_not(value) if isinstance(value, torch.Tensor) else not value


def select(test: torch.Tensor, yes: Any, no: Any) -> Any:
    """`yes if test else no` for values already computed: tensors, numbers, tuples of them."""
    if yes is no or no is UNBOUND:
        return yes
    if yes is UNBOUND:
        return no
    if isinstance(yes, (tuple, list)) and isinstance(no, (tuple, list)) and len(yes) == len(no):
        return type(yes)([select(test, a, b) for a, b in zip(yes, no, strict=True)])
    if not isinstance(yes, (torch.Tensor, int, float, *_Symbol)) or not isinstance(
        no, (torch.Tensor, int, float, *_Symbol)
    ):
        raise Unrewritable(f"a tensor's value decides between {type(yes).__name__} and {type(no).__name__}")
    yes, no = as_tensor(yes, no), as_tensor(no, yes)
    if yes.shape != no.shape and yes.dim() > 0 and no.dim() > 0:
        raise Unrewritable("the two sides of a branch give tensors of different shapes")
    if yes.dtype == no.dtype == torch.bool:  # ONNX Runtime has no Where for bools
        test = _truth(test)
        return torch.logical_or(torch.logical_and(test, yes), torch.logical_and(torch.logical_not(test), no))
    return torch.where(_truth(test), yes, no)


def choose(test: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """`yes() if test else no()`; both sides are computed where the test is a tensor."""
    if isinstance(test, torch.Tensor):
        return select(test, yes(), no())
    return yes() if test else no()


def branch(test: Any, yes: Callable[..., Any], no: Callable[..., Any], names: tuple[Any, ...]) -> Any:
    """An `if` statement: each side takes the names it may change and hands them back."""
    if isinstance(test, torch.Tensor):
        return tuple(select(test, a, b) for a, b in zip(yes(*names), no(*names), strict=True))
    return yes(*names) if test else no(*names)


ADD: dict[str, Callable[[Any, Any], Any]] = {
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
"""What `out[i] += v` and its kin do."""
