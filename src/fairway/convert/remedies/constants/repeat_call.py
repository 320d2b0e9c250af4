"""Repeat a call of torch on real tensors during a capture, which itself has only fake ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import torch

from fairway.torch_internals import (
    DisableTorchFunction,
    FakeTensorMode,
    OpOverloadPacket,
    TorchDispatchMode,
    Untyped,
    disable_current_modes,
    find_schema,
    peek_functorch_interpreter,
)

MAX_RESULT_ELEMENTS = 2**22
"""The largest result of one operator that is computed."""


class NotFollowed(Exception):
    """The call cannot be repeated, or would give another result."""


class _OperatorCheck(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Refuses operators that are random, large or not torch's, and records if one depends on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.reads_values = False

    def __torch_dispatch__(self, func: Untyped, types: Untyped, args: Untyped = (), kwargs: Untyped = None) -> Untyped:
        kwargs = kwargs or {}
        if func.namespace not in ("aten", "prim", "prims") or torch.Tag.nondeterministic_seeded in func.tags:
            raise NotFollowed(str(func))
        tags = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
        reads_values = any(tag in func.tags for tag in tags)
        if not reads_values and _bound_elements((args, kwargs)) > MAX_RESULT_ELEMENTS:
            _check_size(func, args, kwargs)
        self.reads_values |= reads_values
        return func(*args, **kwargs)


def repeat_call(func: Untyped, args: Sequence[Untyped], kwargs: Mapping[str, Untyped]) -> tuple[Untyped, bool]:
    """Return the call's result on real tensors, and whether its type or shape depends on their values."""
    home = getattr(func, "__module__", None) or "torch"  # methods of tensors have none
    if home.split(".")[0] not in ("torch", "builtins"):
        raise NotFollowed(f"a function of {home}")
    if peek_functorch_interpreter() is not None:
        raise NotFollowed("inside torch.vmap or a gradient")
    without_modes = DisableTorchFunction()  # also without the mode that decides branches
    with disable_current_modes(), without_modes, torch.no_grad(), _OperatorCheck() as check:
        try:
            return func(*args, **kwargs), check.reads_values
        except Exception as error:
            raise NotFollowed(str(error)) from error


def _bound_elements(item: object) -> int:
    """Return an upper bound on the elements of any result that operators compute from these arguments."""
    if isinstance(item, torch.Tensor):
        return max(1, item.numel())
    if isinstance(item, list | tuple):
        return prod(map(_bound_elements, item))
    if isinstance(item, dict):
        return prod(map(_bound_elements, item.values()))
    return max(1, abs(int(item))) if isinstance(item, int | float) and abs(item) < 2**62 else 1


def _check_size(func: Untyped, args: Untyped, kwargs: Untyped) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        result = func(*args, **kwargs)
    tensors = result if isinstance(result, list | tuple) else (result,)
    if any(isinstance(tensor, torch.Tensor) and tensor.numel() > MAX_RESULT_ELEMENTS for tensor in tensors):
        raise NotFollowed(f"{func} makes a large tensor")


def get_property_name(func: Untyped) -> str | None:
    """Return the name of the property that `func` reads, or None if it is another function."""
    return getattr(func.__self__, "__name__", "") if getattr(func, "__name__", "") == "__get__" else None


_READING_METHODS = ("__index__", "__int__", "__invert__", "__iter__")


def find_written_arguments(func: object, args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[object]:
    """Yield the arguments that a call may write into."""
    out = kwargs.get("out")
    yield from out if isinstance(out, list | tuple) else (out,)
    name = getattr(func, "__name__", "")
    schema = find_schema(func)
    if schema is not None or isinstance(func, OpOverloadPacket):
        # For an operator called by its name all arguments count, since few are called that way.
        if schema is None or schema.is_mutable:
            yield from (*args, *kwargs.values())
        return
    if name.endswith(("batch_norm", "instance_norm")):
        yield from (*args, *kwargs.values())  # writes into running statistics are not counted by the tensor
    sets = name in ("__setitem__", "__set__") or (name.startswith("__i") and name not in _READING_METHODS)
    if args and (sets or (name.endswith("_") and not name.endswith("__"))):
        yield args[0]
