"""Tensors that present a narrow dtype and have float64 numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator
from fairway.judge.yardstick import Array
from fairway.torch_internals import (
    disable_current_modes,
    disabled_torch_function,
    make_wrapper_subclass,
    tree_leaves,
    tree_map_only,
)

if TYPE_CHECKING:
    from fairway.judge.runtimes.truth import Float64Mode

WIDE_DTYPES = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
"""The dtype in which the truth of each narrow dtype is computed."""

_BUILDERS = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)


class Wide(torch.Tensor):
    """A float64 tensor that presents the dtype of an ordinary run.

    Python code and PyTorch's own checks read `dtype`, and get the narrow one. Operators get `numbers`.
    """

    numbers: torch.Tensor
    truth: Float64Mode

    @staticmethod
    def __new__(cls: type[Wide], numbers: torch.Tensor, dtype: torch.dtype, truth: Float64Mode) -> Wide:
        """Wrap the numbers. The wrapper has their sizes and strides, and no storage."""
        wide: Wide = make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=dtype,
            device=numbers.device,
        )
        wide.numbers = numbers
        wide.truth = truth
        return wide

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares it without the class
        cls, func: Operator, types: object, args: Items = (), kwargs: NamedItems | None = None
    ) -> Item:
        """Run an operator outside the truth's block as inside it."""
        wide = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Wide))
        with wide.truth:
            return func(*args, **(kwargs or {}))

    def numpy(self, *, force: bool = False) -> Array:
        return self.__array__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the rounded numbers. Inside a mode `Tensor.numpy` reads memory that is no longer there."""
        with disable_current_modes():
            return np.array(self.numbers.to(self.dtype).numpy(force=True), dtype)

    def __deepcopy__(self, memo: dict[int, object]) -> torch.Tensor:
        return self.clone()

    def tolist(self) -> Item:
        return self.numbers.tolist()

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]  # its keyword has no name
        return f"Wide({self.numbers!r}, presents={self.dtype})"

    def __format__(self, spec: str) -> str:
        return format(self.numbers, spec)


class WideBuilder(TorchFunctionMode):
    """Lets `torch.tensor` and similar functions take lists of `Wide` tensors, which have no memory to read."""

    def __torch_function__(
        self, func: Callable[..., Item], types: object, args: Items = (), kwargs: NamedItems | None = None
    ) -> Item:
        kwargs = dict(kwargs or {})
        if func not in _BUILDERS:
            return func(*args, **kwargs)
        place = 1 if func is torch.Tensor.new_tensor else 0
        if len(args) <= place or not isinstance(args[place], list | tuple):
            return func(*args, **kwargs)
        dtypes = [leaf.dtype for leaf in tree_leaves(args[place]) if isinstance(leaf, Wide)]
        if not dtypes:
            return func(*args, **kwargs)
        nominal = kwargs.pop("dtype", None) or reduce(torch.promote_types, dtypes)
        numbers = tree_map_only(Wide, lambda wide: wide.numbers.tolist(), args[place])
        wide = torch.tensor(numbers, dtype=WIDE_DTYPES.get(nominal, nominal))
        return wide.to(nominal)
