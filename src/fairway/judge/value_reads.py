"""Record the places at which a model hands numbers that depend on its inputs to Python.

Python decides by such numbers in many ways without an `if`: a place in a list, a key of a dict, a `match`, an
exception, a flag that another function asks for. So the tensors that depend on the inputs' values are marked while the
model runs, and every function that reads a marked tensor is recorded with its place and its result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from fairway.judge.branch_trace import Span, find_span
from fairway.judge.runtimes.items import Item, Items, NamedItems, list_items
from fairway.model.source import is_model_source
from fairway.torch_internals import find_view_base

READING_FUNCTIONS = frozenset(
    {
        "item",
        "tolist",
        "numpy",
        "equal",
        "allclose",
        "is_nonzero",
        "__array__",
        "__bool__",
        "__int__",
        "__float__",
        "__complex__",
        "__index__",
        "__contains__",
        "__format__",
    }
)
"""Functions that hand a tensor's values to Python."""

_COUNTING_FUNCTIONS = frozenset({"nonzero", "argwhere", "unique", "unique_consecutive", "masked_select"})
"""Functions whose result has as many rows as the values demand."""
_SIZE_FUNCTIONS = frozenset({"size", "numel", "nelement", "__len__"})

_SHAPE_FUNCTIONS = frozenset(
    {
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
    }
)
"""Functions whose result depends on the shape of their first argument only."""

_MARK = "fairway_depends_on_values"
_COUNTED_MARK = "fairway_size_depends_on_values"


@dataclass(frozen=True)
class Place:
    """An expression in a file."""

    file: str
    span: Span

    def is_within(self, outer: Span) -> bool:
        inner = self.span
        return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


Stack = tuple[Place, ...]
"""The expressions of the model's own code that were running, the innermost first."""


@dataclass
class ValueRead:
    """The results of all reads at one stack of places."""

    results: dict[object, int]
    """Each result with the first run that gave it."""
    function: str
    """The name of the innermost function."""
    is_size: bool = False
    """True if the size of a tensor was read, which depends on values."""


class ReadRecorder(TorchFunctionMode):
    """Records where values that depend on the inputs are read, while a model runs on marked inputs."""

    def __init__(self, reads: dict[Stack, ValueRead], run: int, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._reads, self._run = reads, run
        for tensor in inputs:
            _mark(tensor, _MARK)

    def __torch_function__(
        self, func: Callable[..., Item], types: object, args: Items = (), kwargs: NamedItems | None = None
    ) -> Item:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = [item for item in list_items([*args, *kwargs.values()]) if isinstance(item, torch.Tensor)]
        if any(_MARK in tensor.__dict__ for tensor in given):
            self._examine(_get_name(func), given, args, kwargs, result)
        return result

    def _examine(self, name: str, given: Sequence[torch.Tensor], args: Items, kwargs: NamedItems, result: Item) -> None:
        if name in READING_FUNCTIONS:
            self._note(result, is_size=False)
        elif name in _SIZE_FUNCTIONS or name == "shape":
            if _COUNTED_MARK in given[0].__dict__:
                self._note(tuple(result) if isinstance(result, torch.Size) else result, is_size=True)
        elif name not in _SHAPE_FUNCTIONS:
            counted = _is_counting(name, args, given)
            for tensor in _list_tensors(result):
                _mark(tensor, _MARK)
                if counted:
                    _mark(tensor, _COUNTED_MARK)
            if _is_writing(name) and isinstance(args[0], torch.Tensor):
                _mark_written(args[0])
            for tensor in _list_tensors(kwargs.get("out")):
                _mark_written(tensor)

    def _note(self, result: Item, is_size: bool) -> None:
        stack: list[Place] = []
        function = ""
        frame: FrameType | None = sys._getframe(3)
        while frame is not None:
            if is_model_source(frame.f_code.co_filename):
                function = function or frame.f_code.co_qualname
                stack.append(Place(frame.f_code.co_filename, find_span(frame.f_code, frame.f_lasti)))
            frame = frame.f_back
        if stack:
            read = self._reads.setdefault(tuple(stack), ValueRead({}, function, is_size))
            read.results.setdefault(_digest(result), self._run)


def _get_name(func: Callable[..., Item]) -> str:
    """Return the name of a function, or of the property that it reads."""
    name = getattr(func, "__name__", "")
    return getattr(getattr(func, "__self__", None), "__name__", "") if name == "__get__" else name


def _is_writing(name: str) -> bool:
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__"))


def _is_counting(name: str, args: Items, given: Sequence[torch.Tensor]) -> bool:
    """Return whether the number of rows of a result depends on values."""
    if name == "__getitem__":
        places = [item for item in list_items([args[1]]) if isinstance(item, torch.Tensor)]
        return any(place.dtype in (torch.bool, torch.uint8) and _MARK in place.__dict__ for place in places)
    return name in _COUNTING_FUNCTIONS or (name == "where" and len(given) == 1)


def _list_tensors(item: Item) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, tuple | list | dict):
        yield from (inner for inner in list_items(item) if isinstance(inner, torch.Tensor))


def _mark(tensor: torch.Tensor, mark: str) -> None:
    tensor.__dict__[mark] = True


def _mark_written(tensor: torch.Tensor) -> None:
    _mark(tensor, _MARK)
    base = find_view_base(tensor)
    if base is not None:
        _mark(base, _MARK)


def _digest(result: Item) -> object:
    """Return a value that two equal results share."""
    if isinstance(result, np.ndarray):
        return result.shape, hash(result.tobytes())
    if isinstance(result, bool | int | float | str):
        return result
    return hash(repr(result))
