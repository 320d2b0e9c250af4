"""One call of torch inside the model, repeated on real values if no input reaches its arguments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from fairway.convert.remedies.constants.real_values import FollowedTensors, Origin, RealValue, SharedMemory
from fairway.convert.remedies.constants.repeat_call import NotFollowed, find_written_arguments, repeat_call
from fairway.judge.value_reads import READING_FUNCTIONS
from fairway.torch_internals import Untyped, count_writes, disable_current_modes, storage_address

MAX_ELEMENTS = 2**20
"""Elements of a tensor up to which calls on it are repeated."""
_PLAIN_TYPES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    np.generic,
)


_UNKNOWN: Untyped = object()


class RealCall:
    """One call: repeated on real tensors if all of its arguments are followed."""

    def __init__(
        self, followed: FollowedTensors, func: Untyped, args: Sequence[Untyped], kwargs: Mapping[str, Untyped]
    ) -> None:
        self._followed, self._func = followed, func
        self.args, self.kwargs = args, kwargs
        self.is_answered = False
        self.answer: Untyped = None
        self._real: Untyped = None
        self._is_repeated = False
        self._values: list[RealValue] = []
        given = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        # All of them are read, so that a write into a tensor that is new here is noticed.
        known = [t for t in given if followed.value_of(t) is not None]
        self._versions = [(t, count_writes(t)) for t in known]
        real = self._to_real((args, kwargs))
        if real is not _UNKNOWN and given:
            self._repeat(*real)
        elif real is _UNKNOWN:
            if self._is_read():
                followed.on_question(None)
            self._index_by_numbers()
        self._given, self._arguments = given, real

    def _is_read(self) -> bool:
        return getattr(self._func, "__name__", "") in READING_FUNCTIONS

    def _to_real(self, item: Untyped) -> Untyped:
        """Return the arguments with real tensors, or `_UNKNOWN` if a tensor has no real counterpart."""
        if isinstance(item, torch.Tensor):
            value = self._followed.value_of(item)
            if value is None or item.numel() > MAX_ELEMENTS:
                return _UNKNOWN
            self._values.append(value)
            return value.real
        if isinstance(item, list | tuple):
            items = [self._to_real(part) for part in item]
            if any(part is _UNKNOWN for part in items):
                return _UNKNOWN
            return items if isinstance(item, list) else tuple(items)
        if isinstance(item, Mapping):
            pairs = {key: self._to_real(part) for key, part in item.items()}
            return _UNKNOWN if any(part is _UNKNOWN for part in pairs.values()) else pairs
        if isinstance(item, slice):
            ends = [self._to_real(part) for part in (item.start, item.stop, item.step)]
            return _UNKNOWN if any(part is _UNKNOWN for part in ends) else slice(*ends)
        if isinstance(item, np.ndarray):
            return item if item.dtype != object else _UNKNOWN
        return item if isinstance(item, _PLAIN_TYPES) else _UNKNOWN

    def _repeat(self, args: Untyped, kwargs: Untyped) -> None:
        before = [count_writes(value.real) for value in self._values]
        try:
            self._real, reads_values = repeat_call(self._func, args, kwargs)
        except NotFollowed:
            return
        self._is_repeated = True
        wrote = before != [count_writes(value.real) for value in self._values]
        if (reads_values or self._is_read()) and not wrote:
            self._followed.note_answer(self._values)
            self.answer, self.is_answered = self._make_constants(self._real), True

    def _make_constants(self, real: Untyped) -> Untyped:
        """Return real tensors as constants of the captured program, and follow these too."""
        if isinstance(real, torch.Tensor):
            with disable_current_modes():
                constant = real.clone()
            self._followed.add(constant, real, SharedMemory(origins=self._origins()))
            return constant
        if isinstance(real, list | tuple):
            return type(real)(self._make_constants(part) for part in real)
        return real

    def _origins(self) -> frozenset[Origin]:
        return frozenset().union(*(value.group.origins for value in self._values))

    def _index_by_numbers(self) -> None:
        """Replace masks that are followed by the positions they pick, whose number is then known."""
        if self._func is torch.Tensor.__getitem__ or self._func is torch.Tensor.__setitem__:
            items = self.args[1] if isinstance(self.args[1], tuple) else (self.args[1],)
            numbers = tuple(itertools.chain.from_iterable(self._places(item) for item in items))
            if len(numbers) != len(items) or any(a is not b for a, b in zip(numbers, items, strict=True)):
                self.args = (self.args[0], numbers, *self.args[2:])
        elif getattr(self._func, "__name__", "") == "repeat_interleave" and len(self.args) + len(self.kwargs) >= 2:
            self._select_repeated()

    def _places(self, item: Untyped) -> Sequence[Untyped]:
        if not isinstance(item, torch.Tensor) or item.dtype not in (torch.bool, torch.uint8) or item.dim() == 0:
            return (item,)
        value = self._followed.value_of(item)
        if value is None or item.numel() > MAX_ELEMENTS:
            return (item,)
        self._followed.note_answer([value])
        with disable_current_modes():
            return value.real.bool().nonzero().unbind(1)

    def _select_repeated(self) -> None:
        named = dict(zip(("input", "repeats", "dim"), self.args, strict=False)) | dict(self.kwargs)
        repeats, dim, tensor = named.get("repeats"), named.get("dim"), named.get("input", named.get("self"))
        if not isinstance(repeats, torch.Tensor) or not isinstance(dim, int) or tensor is None or repeats.dim() != 1:
            return
        value = self._followed.value_of(repeats)
        if value is None or len(repeats) < 2:
            return
        self._followed.note_answer([value])
        with disable_current_modes():
            places = torch.repeat_interleave(torch.arange(len(repeats)), value.real)
        self.answer, self.is_answered = torch.index_select(tensor, dim, places), True

    def finish(self, result: Untyped) -> None:
        """Follow the result, and forget the tensors that the call wrote into, unless the write was repeated."""
        if self._arguments is not _UNKNOWN and not self._given and _is_small(result):
            self._repeat(*self._arguments)  # it creates a tensor from plain numbers
        written = [t for t, version in self._versions if count_writes(t) != version]
        if self._is_repeated:
            for tensor in written:
                group = self._followed.group_of(tensor)
                if group is not None:
                    group.accept_write()
            self._pair(result, self._real, {})
            return
        given = _leaves(list(find_written_arguments(self._func, self.args, self.kwargs)))
        written += [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        for tensor in written:
            group = self._followed.group_of(tensor)
            if group is not None:
                group.known = False

    def _pair(self, result: Untyped, real: Untyped, created: dict[int, SharedMemory]) -> None:
        if isinstance(result, torch.Tensor) and isinstance(real, torch.Tensor):
            same = (result.shape, result.dtype) == (real.shape, real.dtype)
            if same and real.layout == torch.strided and result.stride() == real.stride():
                self._followed.add(result, real, self._group_for(real, created))
        elif isinstance(result, list | tuple) and isinstance(real, list | tuple) and len(result) == len(real):
            for part, real_part in zip(result, real, strict=True):
                self._pair(part, real_part, created)

    def _group_for(self, real: torch.Tensor, created: dict[int, SharedMemory]) -> SharedMemory:
        address = storage_address(real)
        for value in self._values:
            if storage_address(value.real) == address:
                return value.group
        return created.setdefault(address, SharedMemory(origins=self._origins()))


def _is_small(result: Untyped) -> bool:
    leaves = list(_leaves(result))
    return bool(leaves) and all(
        isinstance(leaf, torch.Tensor)
        and all(isinstance(size, int) for size in leaf.shape)
        and leaf.numel() <= MAX_ELEMENTS
        for leaf in leaves
    )


def _leaves(item: Untyped) -> Iterator[Untyped]:
    if isinstance(item, list | tuple):
        for part in item:
            yield from _leaves(part)
    elif isinstance(item, Mapping):
        for part in item.values():
            yield from _leaves(part)
    elif isinstance(item, slice):
        yield from (item.start, item.stop, item.step)
    else:
        yield item
