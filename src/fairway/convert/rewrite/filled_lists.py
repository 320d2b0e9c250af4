"""Lists whose length depends on values: a tensor with room for every possible item, and the number of rows in use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from fairway.convert.rewrite.scalars import RuntimeValue, Selectable, Unrewritable, as_tensor
from fairway.torch_internals import check, register_pytree_node

MAX_STEPS = 2**31 - 1
_steps_of_loops: ContextVar[tuple[RuntimeValue, ...]] = ContextVar("_steps_of_loops", default=())
"""The most steps of each loop around the current step, from the outside in."""


@contextmanager
def enter_loop(most_steps: RuntimeValue) -> Iterator[None]:
    token = _steps_of_loops.set((*_steps_of_loops.get(), most_steps))
    try:
        yield
    finally:
        _steps_of_loops.reset(token)


class Growing(Selectable):
    """A list of tensors of one shape: the rows there is room for, and the number of rows in use."""

    def __init__(self, rows: RuntimeValue, count: RuntimeValue, has_room: bool) -> None:
        self.rows, self.count, self.has_room = rows, count, has_room

    def append(self, value: torch.Tensor, pushes: int) -> Growing:
        rows = self._with_room(value, pushes)
        last = rows.shape[0] - 1
        place = torch.minimum(self.count, as_tensor(last)).reshape(
            1
        )  # beyond the end only on a side that is not chosen
        return Growing(rows.index_copy(0, place, value.unsqueeze(0)), self.count + 1, True)

    def _with_room(self, value: torch.Tensor, pushes: int) -> torch.Tensor:
        if self.has_room:
            rows: torch.Tensor = self.rows
            return rows
        around = _steps_of_loops.get()
        if any(isinstance(steps, int) and steps >= MAX_STEPS for steps in around):
            raise Unrewritable("a `while` fills a list, and nothing says how long it may get; use `for` with a range")
        room = pushes * math.prod(around)
        free = torch.zeros([room, *value.shape], dtype=value.dtype, device=value.device)
        return free if self.rows is None else torch.cat([self.rows, free])

    def __len__(self) -> int:
        raise Unrewritable("the loop asks for the length of a list that it fills")

    def __getitem__(self, key: RuntimeValue) -> torch.Tensor:
        if not isinstance(key, int):
            raise Unrewritable("the loop reads a part of a list that it fills")
        if self.rows is None:
            raise IndexError("list index out of range")
        place = as_tensor(key) if key >= 0 else self.count + key
        row: torch.Tensor = self.rows.index_select(0, place.reshape(1)).squeeze(0)
        return row

    def select(self, test: torch.Tensor, other: RuntimeValue) -> Growing:
        """Choose between the lists of two branches. A branch without an append has the list as it was before."""
        if not self.has_room and not other.has_room:
            return self
        room = (self if self.has_room else other).rows
        yes, no = _pad(self.rows, room), _pad(other.rows, room)
        return Growing(torch.where(test, yes, no), torch.where(test, self.count, other.count), True)

    def used_rows(self) -> object:
        """Return the rows in use as one tensor, or None if there are none."""
        if self.rows is None:
            return None
        number = self.count.item()
        if isinstance(number, torch.SymInt):
            check(number >= 0)
            check(number <= self.rows.shape[0])
        return self.rows.narrow(0, 0, number)


def start_filling(held: RuntimeValue) -> Growing:
    if isinstance(held, Growing):
        return held
    if not isinstance(held, list) or not all(isinstance(item, torch.Tensor) for item in held):
        raise Unrewritable("the loop fills something other than a list of tensors")
    return Growing(torch.stack(held) if held else None, torch.tensor(len(held)), False)


def push(held: RuntimeValue, value: RuntimeValue, pushes: int) -> Growing:
    """Do `held.append(value)`. `pushes` is the most that one step of the innermost loop appends."""
    return start_filling(held).append(as_tensor(value), pushes)


def _pad(rows: RuntimeValue, like: torch.Tensor) -> torch.Tensor:
    if rows is None:
        return torch.zeros_like(like)
    missing = like.shape[0] - rows.shape[0]
    return (
        rows
        if isinstance(missing, int) and missing == 0
        else torch.cat([rows, like.new_zeros([missing, *like.shape[1:]])])
    )


def _flatten(held: Growing) -> tuple[list[object], object]:
    if held.rows is None:
        return [held.count], (False, False)
    return [held.rows, held.count], (True, held.has_room)


def _unflatten(values: RuntimeValue, context: RuntimeValue) -> Growing:
    values = list(values)
    has_rows, has_room = context
    return Growing(values[0] if has_rows else None, values[-1], has_room)


register_pytree_node(Growing, _flatten, _unflatten)
