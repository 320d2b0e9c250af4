"""Infer the dtypes of an operator's results in an ordinary run."""

from __future__ import annotations

from functools import reduce

import torch

from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator, list_items, map_items
from fairway.torch_internals import no_dispatch

_COMPLEX_DTYPES = {
    torch.float32: torch.complex64,
    torch.float16: torch.complex32,
    torch.bfloat16: torch.complex64,
    torch.float64: torch.complex128,
}
_REAL_DTYPES = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


class NominalDtypes:
    """Infers the dtypes of results from the dtypes that the arguments present."""

    def __init__(self) -> None:
        self._known: dict[object, list[torch.dtype] | None] = {}

    def infer(self, func: Operator, args: Items, kwargs: NamedItems, result: Item) -> list[torch.dtype]:
        """Return one dtype for each tensor of `result`, which was computed in float64."""
        tensors = [leaf for leaf in list_items(result) if isinstance(leaf, torch.Tensor)]
        given = list_items((args, kwargs))
        requested = [leaf for leaf in given if isinstance(leaf, torch.dtype) and _is_float(leaf)]
        presented = {leaf.dtype for leaf in given if isinstance(leaf, torch.Tensor) and _is_float(leaf.dtype)}
        inferred = None
        if not requested and len(presented) > 1:
            inferred = self._ask_meta(func, args, kwargs, given)
        if inferred is not None and len(inferred) == len(tensors):
            return inferred
        if requested:
            dtype = requested[0]
        elif presented:
            dtype = reduce(torch.promote_types, presented)
        else:
            dtype = torch.get_default_dtype()
        return [_adapt(dtype, tensor.dtype) for tensor in tensors]

    def _ask_meta(self, func: Operator, args: Items, kwargs: NamedItems, given: Items) -> list[torch.dtype] | None:
        """Return the dtypes that PyTorch gives for tensors without data, or None if it cannot run the operator so."""
        key = (func, *map(_describe_kind, given))
        if key not in self._known:
            try:
                with no_dispatch():
                    stripped_args, stripped_kwargs = map_items(_strip, (args, kwargs))
                    result = func(*stripped_args, **stripped_kwargs)
                self._known[key] = [leaf.dtype for leaf in list_items(result) if isinstance(leaf, torch.Tensor)]
            except Exception:  # an operator without such a kernel may raise anything
                self._known[key] = None
        return self._known[key]


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _adapt(dtype: torch.dtype, computed: torch.dtype) -> torch.dtype:
    """Return the complex or real form of `dtype` that fits the result. Integers and bools keep their dtype."""
    if not _is_float(computed):
        return computed
    if computed.is_complex:
        return _COMPLEX_DTYPES.get(dtype, dtype)
    return _REAL_DTYPES.get(dtype, dtype)


def _describe_kind(item: Item) -> Item:
    """Return the part of an argument on which dtypes depend."""
    if isinstance(item, torch.Tensor):
        return item.dtype, item.dim() > 0
    return item if isinstance(item, torch.dtype) else type(item)


def _strip(item: Item) -> Item:
    if isinstance(item, torch.Tensor):
        return torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="meta")
    return torch.device("meta") if isinstance(item, torch.device) else item
