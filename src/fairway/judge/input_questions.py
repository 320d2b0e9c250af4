"""The questions that a model asks of its inputs: numbers that it compares with, and the search for NaN and infinity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch.overrides import TorchFunctionMode

from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator, list_items
from fairway.judge.runtimes.operator_watch import OperatorWatch

NONFINITE_FUNCTIONS = frozenset(
    {
        "isnan",
        "isfinite",
        "nan_to_num",
        "nan_to_num_",
        "nansum",
        "nanmean",
        "nanmedian",
        "nanquantile",
    }
)
"""A model that calls one of these on an input expects NaN or infinity in it."""

INFINITE_FUNCTIONS = frozenset({"isinf", "isposinf", "isneginf"})
"""A model that calls one of these expects infinity."""

_EQUALITY_FUNCTIONS = frozenset({"eq", "ne", "__eq__", "__ne__"})
"""A tensor that is compared with itself, or with infinity, is searched for NaN or infinity as well."""

_KEEPING_FUNCTIONS = frozenset(
    {
        "abs",
        "neg",
        "add",
        "sub",
        "mul",
        "div",
        "true_divide",
        "to",
        "type",
        "float",
        "double",
        "half",
        "bfloat16",
        "clone",
        "detach",
        "contiguous",
        "view",
        "reshape",
        "flatten",
        "squeeze",
        "unsqueeze",
        "permute",
        "transpose",
        "getitem",
        "pos",
    }
)
"""Functions whose result is NaN or infinite where their argument is."""

_COMPARING_OPERATORS = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold", "isin"}
    | {"bucketize", "searchsorted", "maximum", "minimum"}
)
MAX_COMPARED_ELEMENTS = 8
"""A tensor with more elements is data, and not something to compare with."""


class NonfiniteRecorder(TorchFunctionMode):
    """Records the inputs that the model tests for NaN or infinity, as they are or after simple arithmetic."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._inputs = {t.untyped_storage().data_ptr(): i for i, t in enumerate(tensors) if t.nbytes}
        self._kept: dict[int, tuple[torch.Tensor, int]] = {}
        """By id: tensors that are NaN where an input is, which are kept so that the ids stay theirs."""
        self.tested_inputs: set[int] = set()
        """Inputs that the model searches for NaN."""
        self.infinite_inputs: set[int] = set()
        """Inputs that the model compares with infinity."""

    def __torch_function__(
        self, func: Callable[..., Item], types: object, args: Items = (), kwargs: NamedItems | None = None
    ) -> Item:
        result = func(*args, **(kwargs or {}))
        index = self._find_input(args[0]) if args else None
        if index is None and len(args) > 1:  # 2 * x calls x.__rmul__, and torch.mul(scale, x) has x second
            index = self._find_input(args[1])
        if index is not None:
            name = getattr(func, "__name__", "")
            if name in NONFINITE_FUNCTIONS or (name in _EQUALITY_FUNCTIONS and _is_compared_with_itself(args)):
                self.tested_inputs.add(index)
            elif name in INFINITE_FUNCTIONS or (name in _EQUALITY_FUNCTIONS and _is_compared_with_infinity(args)):
                self.infinite_inputs.add(index)
            plain = name.strip("_").removeprefix("r") if name not in _KEEPING_FUNCTIONS else name
            if isinstance(result, torch.Tensor) and (
                {plain, name.strip("_")} & _KEEPING_FUNCTIONS or name == "__truediv__"
            ):
                self._kept[id(result)] = result, index
        return result

    def _find_input(self, item: Item) -> int | None:
        if not isinstance(item, torch.Tensor):
            return None
        if id(item) in self._kept:
            return self._kept[id(item)][1]
        return self._inputs.get(item.untyped_storage().data_ptr())


def _is_compared_with_itself(args: Items) -> bool:
    return len(args) > 1 and args[0] is args[1]


def _is_compared_with_infinity(args: Items) -> bool:
    return len(args) > 1 and isinstance(args[1], float) and math.isinf(args[1])


class ComparedNumbers(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Records the numbers with which operators compare, wherever the model has them from."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[float, None] = {}

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        if func.overloadpacket.__name__.removesuffix("_") in _COMPARING_OPERATORS:
            for item in list_items([*args, *kwargs.values()]):
                self._note(item)
        return func(*args, **kwargs)

    def _note(self, item: Item) -> None:
        numbers = [item] if type(item) in (int, float) else []
        if isinstance(item, torch.Tensor) and item.numel() <= MAX_COMPARED_ELEMENTS:
            is_number = not item.dtype.is_complex and item.dtype != torch.bool and item.device.type != "meta"
            numbers = item.detach().reshape(-1).tolist() if is_number else []
        self.numbers.update((float(number), None) for number in numbers if math.isfinite(number))
