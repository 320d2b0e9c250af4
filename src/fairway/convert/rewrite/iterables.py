"""Ranges, rows and lists of tensors that rewritten loops run over and fill."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fairway.convert.rewrite.scalars import RuntimeValue, Unrewritable
from fairway.convert.rewrite.subscripts import get


@dataclass(frozen=True)
class Steps:
    """The range of a loop's index, and `at(k)`, the item of the k-th step, where k is a tensor."""

    start: RuntimeValue
    stop: RuntimeValue
    step: int
    at: Callable[[RuntimeValue], RuntimeValue]

    def __iter__(self) -> Iterator[RuntimeValue]:
        """Yield the items of a loop whose index Python counts in plain numbers."""
        return (self.at(k) for k in range(self.start, self.stop, self.step))


def _return_index(value: RuntimeValue) -> RuntimeValue:
    return value


def steps(*bounds: object) -> RuntimeValue:
    """Return `range(...)`."""
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not isinstance(step, int):
        raise Unrewritable("the step of a range is not a plain number")
    return Steps(start, stop, step, _return_index)


def forever() -> Steps:
    """Return the steps of a `while` loop: practically endless, because a `break` in the body ends the loop."""
    return Steps(0, MOST_STEPS, 1, _return_index)


MOST_STEPS = 2**31 - 1


def over(held: RuntimeValue) -> RuntimeValue:
    """Return what `for row in held` runs over: rows of a tensor, the steps of a range, or `held` itself."""
    if isinstance(held, Steps):
        return held
    if isinstance(held, (Rows, torch.Tensor)):
        rows = held.tensor if isinstance(held, Rows) else held
        return Steps(0, rows.shape[0], 1, lambda k: get(rows, k))
    return held


def enumerate_(held: RuntimeValue, start: RuntimeValue = 0) -> RuntimeValue:
    inner = over(held)
    if not isinstance(inner, Steps):
        return builtins.enumerate(held, start)
    plain = inner.start == 0 and inner.step == 1 if isinstance(inner.start, int) else False
    if not plain:
        raise Unrewritable("enumerate over a range that does not start at 0")
    return Steps(0, inner.stop, 1, lambda k: (k + start, inner.at(k)))


def zip_(*held: object) -> RuntimeValue:
    inner = [over(part) for part in held]
    if not any(isinstance(part, Steps) for part in inner):
        return builtins.zip(*held, strict=False)
    first = next(part for part in inner if isinstance(part, Steps))
    ats = [part.at if isinstance(part, Steps) else _make_list_reader(part) for part in inner]
    if any(
        part.step != 1 or not isinstance(part.start, int) or part.start != 0
        for part in inner
        if isinstance(part, Steps)
    ):
        raise Unrewritable("zip over a range that does not start at 0")
    return Steps(0, first.stop, 1, lambda k: tuple([at(k) for at in ats]))


def _make_list_reader(held: RuntimeValue) -> Callable[[object], object]:
    items = list(held)
    return lambda k: get(items, k)


def reversed_(held: RuntimeValue) -> RuntimeValue:
    inner = over(held)
    if isinstance(held, Rows):
        return Rows(held.tensor.flip(0))
    if not isinstance(inner, Steps):
        return builtins.reversed(held)
    if inner.step != 1:
        raise Unrewritable("a reversed range with a step")
    last = inner.start + inner.stop - 1
    return Steps(inner.start, inner.stop, 1, lambda k: inner.at(last - k))


class Rows:
    """A list of tensors of one shape, kept as one tensor with a row for each."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def append(self, value: torch.Tensor) -> None:
        self.tensor = torch.cat([self.tensor, value.unsqueeze(0)])

    def __getitem__(self, key: RuntimeValue) -> RuntimeValue:
        if isinstance(key, slice):
            backwards = key.step == -1 and key.start is None and key.stop is None
            return Rows(self.tensor.flip(0) if backwards else self.tensor[key])
        return self.tensor[key]

    def __len__(self) -> int:
        return self.tensor.shape[0]


def unbind(held: RuntimeValue, dim: int = 0) -> RuntimeValue:
    """Return `held.unbind(dim)` for a loop to run over."""
    return Rows(held.movedim(dim, 0)) if isinstance(held, torch.Tensor) else held.unbind(dim)


def split(held: RuntimeValue, split_size: RuntimeValue, dim: int = 0) -> RuntimeValue:
    """Return `held.split(1, dim)` for a loop to run over. Other parts may differ in length, and stay a tuple."""
    if not isinstance(held, torch.Tensor) or not isinstance(split_size, int) or split_size != 1:
        return held.split(split_size, dim)
    front = held.movedim(dim, 0)
    return Steps(0, front.shape[0], 1, lambda k: get(front, k).unsqueeze(dim))


def rows(held: RuntimeValue) -> torch.Tensor:
    """Return the rows that one step put into a list."""
    if isinstance(held, Rows):
        return held.tensor
    if not held:
        raise Unrewritable("a step of the loop puts nothing into the list")
    if not all(isinstance(value, torch.Tensor) for value in held):
        raise Unrewritable("the loop collects something other than tensors")
    return torch.stack(held)


def extend(held: RuntimeValue, more: torch.Tensor) -> Rows:
    more = more.flatten(0, 1)
    if isinstance(held, Rows):
        return Rows(torch.cat([held.tensor, more]))
    return Rows(torch.cat([torch.stack(held), more]) if held else more)


def join(held: torch.Tensor, parts: RuntimeValue, dim: int) -> torch.Tensor:
    """Return a tensor with the parts that a loop collected to extend it, along one dim."""
    if not isinstance(parts, Rows) and not parts:
        return held
    return torch.cat([held, cat(parts, dim)], dim)


def stack(held: RuntimeValue, dim: int = 0) -> torch.Tensor:
    return held.tensor.movedim(0, dim) if isinstance(held, Rows) else torch.stack(held, dim)


def cat(held: RuntimeValue, dim: int = 0) -> torch.Tensor:
    if not isinstance(held, Rows):
        steps = getattr(held, "steps", None)  # rows of different lengths
        return torch.cat(held, dim) if steps is None or dim != 0 else steps
    place = dim if dim >= 0 else dim + held.tensor.dim() - 1
    if statically_known_true(held.tensor.shape[place + 1] == 1):  # a reshape asks for the length, which may be a value
        return held.tensor.movedim(0, place).squeeze(place + 1)
    return held.tensor.movedim(0, place).flatten(place, place + 1)


def len_(held: RuntimeValue) -> RuntimeValue:
    if isinstance(held, Rows):
        return held.tensor.shape[0]
    return held.shape[0] if isinstance(held, torch.Tensor) else len(held)


def has_items(held: RuntimeValue) -> bool:
    """Return whether a list is not empty. One that a loop filled counts as such: its rows may be none."""
    return isinstance(held, Rows) or bool(held)


def sum_(held: RuntimeValue, start: RuntimeValue = 0) -> RuntimeValue:
    return held.tensor.sum(0) + start if isinstance(held, Rows) else builtins.sum(held, start)
