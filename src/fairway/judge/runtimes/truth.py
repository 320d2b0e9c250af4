"""The truth: the model run in float64, while its code sees the dtypes of an ordinary run.

Each narrow float tensor is replaced by a `Wide` one, which presents the narrow dtype and has float64 numbers. So
`x.dtype`, `torch.finfo(x.dtype)`, casts, factories, autocast and PyTorch's dtype checks answer as in an ordinary run.
Casts between floats do not round. The model's own tensors are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from fairway.judge.runtimes import large_weights as huge
from fairway.judge.runtimes.eager import disable_compilation
from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator, list_items, map_items
from fairway.judge.runtimes.nominal_dtypes import NominalDtypes
from fairway.judge.runtimes.operator_watch import OperatorWatch
from fairway.judge.runtimes.wide_operators import (
    BIT_OPERATORS,
    COMPARISONS,
    RANDOM_OPERATORS,
    SHAPE_CHANGING_OPERATORS,
    adopt_shape,
    is_same_memory,
    multiply_groups,
    round_scalar,
)
from fairway.judge.runtimes.wide_tensors import WIDE_DTYPES, Wide, WideBuilder
from fairway.model.outputs import find_output_leaves
from fairway.model.subject import Subject
from fairway.model.weight_mappings import release_mapped_memory
from fairway.torch_internals import DispatchKey, HigherOrderOperator, aten_grouped_mm, read_schema

_aten = torch.ops.aten


def run_truth(subject: Subject, tensors: Sequence[torch.Tensor], piecewise: bool = False) -> list[torch.Tensor]:
    """Return the model's outputs computed in float64 throughout, also if forward names float32.

    If `piecewise`, each weight is widened when it is used, and freed afterwards: slower, with less memory.
    """
    with torch.no_grad(), disable_compilation(), _disable_onednn(), Float64Mode(piecewise) as truth, WideBuilder():
        args, kwargs = subject.call([truth.widen(tensor.clone()) for tensor in tensors])
        leaves = find_output_leaves(subject.model(*args, **kwargs))
        values: list[torch.Tensor] = [leaf.value for leaf in leaves]
    return [truth.get_numbers(value) for value in values]


class Float64Mode(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """While inside, every operator computes in float64, and its results present the dtype of an ordinary run.

    If `piecewise`, a large weight is widened in parts if possible. If that is impossible and the weight is huge, the
    pages read from mapped checkpoints are freed first.
    """

    def __init__(self, piecewise: bool = False) -> None:
        super().__init__()
        self._piecewise = piecewise
        self._nominal = NominalDtypes()
        self._shadows: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """By id: a narrow tensor that the run did not make, and its float64 copy, which the run reads and writes."""
        self._weight_views: dict[int, torch.Tensor] = {}
        """By id: narrow views of large weights, made while `piecewise`."""

    def widen(self, item: Item) -> Item:
        """Return a tensor that presents the same dtype and computes in float64. Return other items unchanged."""
        if not isinstance(item, torch.Tensor) or isinstance(item, Wide) or item.dtype not in WIDE_DTYPES:
            return item
        return self._present(item.to(WIDE_DTYPES[item.dtype]), item.dtype)

    def get_numbers(self, item: Item, keep: bool = False) -> Item:
        """Return the item for operators to use: a tensor's float64 numbers, a wide dtype, or the item itself."""
        if isinstance(item, Wide):
            return item.numbers
        if isinstance(item, torch.dtype):
            return WIDE_DTYPES.get(item, item)
        if not isinstance(item, torch.Tensor) or item.dtype not in WIDE_DTYPES:
            return item
        if id(item) in self._shadows:
            return self._shadows[id(item)][1]
        wide = item.to(WIDE_DTYPES[item.dtype])
        if keep or not self._is_freed(item):
            self._shadows[id(item)] = (item, wide)
        return wide

    def _is_freed(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor's float64 copy is freed after one operator."""
        return self._piecewise and (isinstance(tensor, torch.nn.Parameter) or id(tensor) in self._weight_views)

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        packet = func.overloadpacket
        if packet in COMPARISONS and isinstance(args[1], float):
            args = (args[0], round_scalar(args[1], args[0].dtype), *args[2:])
        if packet.__name__.removesuffix("_") in RANDOM_OPERATORS or func in BIT_OPERATORS:
            return self._run_narrow(func, args, kwargs)
        if func is _aten.copy_.default and is_same_memory(args[0], args[1]):
            return args[
                0
            ]  # matmul(out=...) copies into the result, because it cannot see that both are the same memory
        if self._piecewise:
            result = self._run_in_parts(func, args, kwargs)
            if result is not NotImplemented:
                return result
        result = self._run_wide(func, args, kwargs)
        if packet in SHAPE_CHANGING_OPERATORS and isinstance(args[0], Wide):
            adopt_shape(args[0])
        return result

    def _run_wide(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        origins: dict[int, torch.Tensor] = {}
        is_mutable = read_schema(func).is_mutable

        def widen(item: Item) -> Item:
            numbers = self.get_numbers(item, keep=is_mutable)
            if numbers is not item and isinstance(item, torch.Tensor):
                origins[id(numbers)] = item
            return numbers

        if is_mutable and any(id(item) in self._weight_views for item in list_items((args, kwargs))):
            raise NotImplementedError(f"{func} may write into a part of a large weight")
        wide_args, wide_kwargs = map_items(widen, (args, kwargs))
        compute = multiply_groups if func is aten_grouped_mm else func
        with _use_default_dtype(torch.float64):
            result = compute(*wide_args, **wide_kwargs)
        return self._present_all(result, self._nominal.infer(func, args, kwargs, result), origins)

    def _present_all(self, result: Item, dtypes: Sequence[torch.dtype], origins: Mapping[int, torch.Tensor]) -> Item:
        """Return the results with their nominal dtypes. A tensor that was written and returned keeps its dtype."""
        rest = iter(dtypes)

        def present(item: Item) -> Item:
            if not isinstance(item, torch.Tensor):
                return item
            dtype = next(rest)
            return origins[id(item)] if id(item) in origins else self._present(item, dtype)

        return map_items(present, result)

    def _present(self, numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the numbers as a tensor of `dtype`. Sparse and nested tensors and subclasses stay float64."""
        if WIDE_DTYPES.get(dtype) != numbers.dtype or type(numbers) is not torch.Tensor:
            return numbers
        return Wide(numbers, dtype, self) if numbers.layout == torch.strided and not numbers.is_nested else numbers

    def _run_narrow(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        """Run in the dtypes that the arguments present: random numbers and bits differ between dtypes."""
        narrow: dict[int, torch.Tensor] = {}

        def narrow_down(item: Item) -> Item:
            if not isinstance(item, Wide) and id(item) not in self._shadows:
                return item
            return narrow.setdefault(id(item), self.get_numbers(item).to(item.dtype))

        narrow_args, narrow_kwargs = map_items(narrow_down, (args, kwargs))
        result = func(*narrow_args, **narrow_kwargs)
        if read_schema(func).is_mutable:
            self.get_numbers(args[0], keep=True).copy_(narrow_args[0])
            return args[0]
        return map_items(self.widen, result)

    def _run_in_parts(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        """Run an operator on a large weight part by part, or return NotImplemented if that does not apply."""
        large = [item for item in list_items((args, kwargs)) if self._is_large_weight(item)]
        if not large:
            return NotImplemented

        def unwrap(item: Item) -> Item:
            return item if self._is_large_weight(item) else self.get_numbers(item)

        result = huge.run_in_parts(func, *map_items(unwrap, (args, kwargs)))
        if result is NotImplemented:
            if max(tensor.nbytes for tensor in large) >= huge.HUGE_WEIGHT_BYTES:
                release_mapped_memory()
            return result
        if func.is_view:
            for view in list_items(result):
                self._weight_views[id(view)] = view
            return result
        wide = result.to(torch.float64)
        return self._present_all(wide, self._nominal.infer(func, args, kwargs, wide), {})

    def _is_large_weight(self, item: Item) -> bool:
        if not isinstance(item, torch.Tensor) or item.dtype not in WIDE_DTYPES or isinstance(item, Wide):
            return False
        if item.layout != torch.strided or id(item) in self._shadows:
            return False
        return item.nbytes >= huge.PART_BYTES and self._is_freed(item)

    def prepare(self, func: HigherOrderOperator) -> None:
        """Let `torch.cond` and similar operators run an unknown subclass by the rule for ordinary tensors."""
        dense = func.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
        if dense is not None and Wide not in func.python_key_table:
            func.py_impl(Wide)(dense)


@contextmanager
def _disable_onednn() -> Iterator[None]:
    """Disable oneDNN while inside. PyTorch chooses its recurrent layers by dtype, and those have no float64."""
    (before, *_) = torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]  # torch's is untyped
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before)  # type: ignore[no-untyped-call]  # as above


@contextmanager
def _use_default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
