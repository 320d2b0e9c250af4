"""Repeat a call of torch on real tensors, beside a capture that has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch._subclasses import FakeTensorMode  # this and the next seen to work in torch 2.9–2.13; no public counterpart
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

LARGEST_RESULT = 2**22
"""Elements that one operator may make."""


class NotFollowed(Exception):
    """The call cannot be repeated, or would not give the same again."""


class _Examined(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Refuses operators that are random, large or not torch's; notes those that depend on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.asks = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace not in ("aten", "prim", "prims") or torch.Tag.nondeterministic_seeded in func.tags:
            raise NotFollowed(str(func))
        tags = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
        asks = any(tag in func.tags for tag in tags)
        if not asks and _bound((args, kwargs)) > LARGEST_RESULT:
            _check_size(func, args, kwargs)
        self.asks |= asks
        return func(*args, **kwargs)


def repeat(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return what the call gives on real tensors, and whether what it gives depends on their values in kind."""
    home = getattr(func, "__module__", None) or "torch"  # methods of tensors have none
    if home.split(".")[0] not in ("torch", "builtins"):
        raise NotFollowed(f"a function of {home}")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotFollowed("inside torch.vmap or a gradient")
    plain = torch._C.DisableTorchFunction()  # other modes, such as one that decides branches, are not asked
    with _disable_current_modes(), plain, torch.no_grad(), _Examined() as examined:
        try:
            return func(*args, **kwargs), examined.asks
        except Exception as error:
            raise NotFollowed(str(error)) from error


def _bound(item: Any) -> int:
    """Return a number of elements that no operator exceeds with these arguments."""
    if isinstance(item, torch.Tensor):
        return max(1, item.numel())
    if isinstance(item, list | tuple):
        return prod(map(_bound, item))
    if isinstance(item, dict):
        return prod(map(_bound, item.values()))
    return max(1, abs(int(item))) if isinstance(item, int | float) and abs(item) < 2**62 else 1


def _check_size(func: Any, args: Any, kwargs: Any) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        result = func(*args, **kwargs)
    tensors = result if isinstance(result, list | tuple) else (result,)
    if any(isinstance(one, torch.Tensor) and one.numel() > LARGEST_RESULT for one in tensors):
        raise NotFollowed(f"{func} makes a large tensor")


def property_name(func: Any) -> str | None:
    """Return the name of the property that `func` reads, or None if it is another function."""
    return getattr(func.__self__, "__name__", "") if getattr(func, "__name__", "") == "__get__" else None


_READING = ("__index__", "__int__", "__invert__", "__iter__")


def is_written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the arguments that a call may write into."""
    out = kwargs.get("out")
    yield from out if isinstance(out, list | tuple) else (out,)
    name = getattr(func, "__name__", "")
    schema = getattr(func, "_schema", None)
    if schema is not None or isinstance(func, torch._ops.OpOverloadPacket):
        # Of an operator called by its name all arguments count, since few are called so.
        if schema is None or schema.is_mutable:
            yield from (*args, *kwargs.values())
        return
    if name.endswith(("batch_norm", "instance_norm")):
        yield from (*args, *kwargs.values())  # running statistics are written into without any trace
    sets = name in ("__setitem__", "__set__") or (name.startswith("__i") and name not in _READING)
    if args and (sets or (name.endswith("_") and not name.endswith("__"))):
        yield args[0]
