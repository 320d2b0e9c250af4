"""Reads and writes by an index that is a tensor: a gather for the read, a masked copy for the write.

Nothing here changes its argument. A write answers with a new tensor; the loop gives it back to the old one at its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fairway.convert.rewrite.scalars import ADD, Unrewritable, as_tensor


@dataclass(frozen=True)
class FixedLengthSlice:
    """`start:start + length`, where the source shows that the length does not change from step to step."""

    start: Any
    length: Any


@dataclass(frozen=True)
class TensorSlice:
    """`start:stop:step` with bounds that may be tensors, which Dynamo does not let a `slice` hold."""

    start: Any
    stop: Any
    step: Any


def _moves(part: Any) -> bool:
    if isinstance(part, TensorSlice):
        return isinstance(part.start, torch.Tensor) or isinstance(part.stop, torch.Tensor)
    if isinstance(part, FixedLengthSlice):
        return isinstance(part.start, torch.Tensor)
    return isinstance(part, torch.Tensor)


def _static(part: Any) -> Any:
    if isinstance(part, TensorSlice):
        return slice(part.start, part.stop, part.step)
    return slice(part.start, part.start + part.length) if isinstance(part, FixedLengthSlice) else part


def _parts(key: Any, rank: int) -> list[Any]:
    """The key with one entry per dimension of the tensor, and `None` where it adds one."""
    parts = list(key) if isinstance(key, tuple) else [key]
    given = sum(1 for part in parts if part is not None and part is not Ellipsis)
    for place, part in enumerate(parts):
        if part is Ellipsis:
            return parts[:place] + [slice(None)] * (rank - given) + parts[place + 1 :]
    return parts + [slice(None)] * (rank - given)


def get(held: Any, key: Any) -> Any:
    """`held[key]`, where the key may hold tensors: on tensors, lists of tensors, and containers of modules."""
    parts = key if isinstance(key, tuple) else (key,)
    if not any(_moves(part) for part in parts):
        return held[tuple(_static(p) for p in key) if isinstance(key, tuple) else _static(key)]
    if isinstance(held, torch.Tensor):
        return _read(held, _parts(key, held.dim()))
    if isinstance(held, (torch.nn.ModuleDict, dict)):
        return chosen_by_name(held, key)
    if hasattr(held, "tensor"):
        return get(held.tensor, key)
    items = list(held)
    if isinstance(items[0], torch.nn.Module):
        return Chosen(tuple(items), key)
    return get(torch.stack([as_tensor(value) for value in items]), key)


def _read(held: torch.Tensor, parts: list[Any]) -> torch.Tensor:
    if any(isinstance(part, torch.Tensor) and part.dim() > 0 for part in parts):
        return _take_all(held, parts)
    place = 0
    for part in parts:
        if part is None:
            held = held.unsqueeze(place)
            place += 1
        elif isinstance(part, torch.Tensor):
            held = _take(held, place, part)
        elif isinstance(part, FixedLengthSlice):
            held = _take(held, place, part.start + torch.arange(part.length, device=held.device))
            place += 1
        elif isinstance(part, (slice, TensorSlice)):
            if _moves(part):
                raise Unrewritable("a slice whose length changes from step to step has no fixed shape")
            held = held[(slice(None),) * place + (_static(part),)]
            place += 1
        else:
            held = held.select(place, part)
    return held


def _take(held: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.index.Tensor(held, [None] * dim + [index])  # type: ignore[no-any-return]


def _take_all(held: torch.Tensor, parts: list[Any]) -> torch.Tensor:
    if any(isinstance(part, FixedLengthSlice) or part is None for part in parts):
        raise Unrewritable("an index tensor beside a moving slice")
    return held[tuple(parts)]


_CONTAINERS, _KEYS = (dict, list), (int, str)
"""As tuples: Dynamo, which reads `put`, knows no unions of types."""


def put(held: Any, key: Any, value: Any, sign: str = "") -> Any:
    """What `held` is after `held[key] = value`, or after `held[key] += value` with the sign given."""
    if isinstance(held, _CONTAINERS) and isinstance(key, _KEYS):
        copied: Any = held.copy()
        copied[key] = ADD[sign](copied[key], value) if sign else value
        return copied
    if not isinstance(held, torch.Tensor):
        raise Unrewritable(f"a write into a {type(held).__name__} by an index that is a tensor")
    parts = _parts(key, held.dim())
    if any(
        part is None or (isinstance(part, torch.Tensor) and (part.dim() > 0 or part.dtype == torch.bool))
        for part in parts
    ):
        return _put_by_tensor(held, parts, value, sign)
    value = as_tensor(value, held)
    kept = [d for d, part in enumerate(parts) if isinstance(part, (slice, FixedLengthSlice, TensorSlice))]
    value = value.reshape([1] * (len(kept) - value.dim()) + list(value.shape[max(0, value.dim() - len(kept)) :]))
    for dim in range(held.dim()):
        if dim not in kept:
            value = value.unsqueeze(dim)
    mask = None
    for dim, part in enumerate(parts):
        if isinstance(part, slice) and part == slice(None):
            continue
        at = torch.arange(held.shape[dim], device=held.device)
        inside, value = _place(at, dim, part, held.shape[dim], value)
        inside = inside.reshape([-1 if d == dim else 1 for d in range(held.dim())])
        mask = inside if mask is None else mask & inside
    new = ADD[sign](held, value) if sign else value.expand(held.shape)
    new = new.to(held.dtype)
    return new if mask is None else torch.where(mask, new, held)


def _place(at: torch.Tensor, dim: int, part: Any, size: Any, value: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """Which positions along `dim` are written, and the value spread so that each position finds its own."""
    if not isinstance(part, (slice, FixedLengthSlice, TensorSlice)):
        part = as_tensor(part)
        return at == torch.where(part < 0, part + size, part), value
    if isinstance(part, FixedLengthSlice):
        start, stop, step = part.start, part.start + part.length, 1
    else:
        start = 0 if part.start is None else part.start
        stop = size if part.stop is None else part.stop
        step = 1 if part.step is None else part.step
    start, stop = _from_the_end(start, size), _from_the_end(stop, size)
    inside = (at >= start) & (at < stop)
    if step != 1:
        inside = inside & ((at - start) % step == 0)
    if value.shape[dim] != 1:
        where = torch.clamp((at - start) // step, min=0, max=value.shape[dim] - 1)
        value = _take(value, dim, where)
    return inside, value


def _from_the_end(bound: Any, size: Any) -> Any:
    if isinstance(bound, torch.Tensor):
        return torch.where(bound < 0, bound + size, bound)
    return bound + size if isinstance(bound, int) and bound < 0 else bound


def _put_by_tensor(held: torch.Tensor, parts: list[Any], value: Any, sign: str) -> torch.Tensor:
    key = tuple(parts)
    new = held.clone()
    new[key] = ADD[sign](held[key], value) if sign else value
    return new


class Chosen:
    """Modules of which a tensor picks one: every one of them is run, and the result picked."""

    def __init__(self, modules: tuple[Any, ...], index: torch.Tensor) -> None:
        self.modules, self.index = modules, index

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return pick([module(*args, **kwargs) for module in self.modules], self.index)

    def __getattr__(self, name: str) -> Any:
        values = [getattr(module, name) for module in self.modules]
        if isinstance(values[0], (torch.Tensor, int, float, tuple)):
            return pick(values, self.index)
        return Chosen(tuple(values), self.index)


def chosen_by_name(held: Any, index: torch.Tensor) -> Chosen:
    """`held[str(index)]`: the names must be numbers."""
    names = list(held.keys())
    if not all(str(name).isdigit() for name in names):
        raise Unrewritable("the modules are chosen by names that are not numbers")
    numbers = torch.tensor([int(name) for name in names], device=index.device)
    position = (numbers == index.unsqueeze(-1)).to(torch.int64).argmax(-1)
    return Chosen(tuple(held[name] for name in names), position)


def pick(values: list[Any], index: torch.Tensor) -> Any:
    """The value at the index, out of tensors, numbers or tuples of the same make."""
    if isinstance(values[0], (tuple, list)):
        return type(values[0])([pick(list(column), index) for column in zip(*values, strict=True)])
    if isinstance(values[0], dict):
        return {key: pick([value[key] for value in values], index) for key in values[0]}
    return _take(torch.stack([as_tensor(value) for value in values]), 0, index)
