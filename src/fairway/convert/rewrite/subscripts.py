"""Read and write by an index that is a tensor: a gather for the read, a masked copy for the write.

No function here changes its argument. A write returns a new tensor, and the loop copies it into the old one at its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fairway.convert.rewrite.scalars import OPERATORS, RuntimeValue, Unrewritable, as_tensor, where


@dataclass(frozen=True)
class FixedLengthSlice:
    """A slice `start:start + length` whose length does not change from step to step, as the source shows."""

    start: RuntimeValue
    length: RuntimeValue


@dataclass(frozen=True)
class TensorSlice:
    """A slice `start:stop:step` with bounds that may be tensors, which Dynamo does not allow in a `slice`."""

    start: RuntimeValue
    stop: RuntimeValue
    step: RuntimeValue
    is_aligned: bool = False
    """Whether what is written has an element for each of the dim, of which those of the slice are taken."""


def _is_moving(part: RuntimeValue) -> bool:
    if isinstance(part, TensorSlice):
        return isinstance(part.start, torch.Tensor) or isinstance(part.stop, torch.Tensor)
    if isinstance(part, FixedLengthSlice):
        return isinstance(part.start, torch.Tensor)
    return isinstance(part, torch.Tensor)


def _to_static(part: RuntimeValue) -> RuntimeValue:
    if isinstance(part, TensorSlice):
        return slice(part.start, part.stop, part.step)
    return slice(part.start, part.start + part.length) if isinstance(part, FixedLengthSlice) else part


def _expand_key(key: RuntimeValue, rank: int) -> list[RuntimeValue]:
    """Return the key with one entry per dim of the tensor, and `None` for each dim that it adds."""
    parts = list(key) if isinstance(key, tuple) else [key]
    given = sum(1 for part in parts if part is not None and part is not Ellipsis)
    for place, part in enumerate(parts):
        if part is Ellipsis:
            return parts[:place] + [slice(None)] * (rank - given) + parts[place + 1 :]
    return parts + [slice(None)] * (rank - given)


def get(held: RuntimeValue, key: RuntimeValue) -> RuntimeValue:
    """Return `held[key]` of a tensor, a list of tensors or a container of modules. The key may contain tensors."""
    parts = key if isinstance(key, tuple) else (key,)
    if not any(_is_moving(part) for part in parts):
        return held[tuple(_to_static(p) for p in key) if isinstance(key, tuple) else _to_static(key)]
    if isinstance(held, torch.Tensor):
        return _read(held, _expand_key(key, held.dim()))
    if isinstance(held, (torch.nn.ModuleDict, dict)):
        return choose_by_name(held, key)
    if hasattr(held, "tensor"):
        return get(held.tensor, key)
    items = list(held)
    if isinstance(items[0], torch.nn.Module):
        return ChosenModules(tuple(items), key)
    return get(torch.stack([as_tensor(value) for value in items]), key)


def _read(held: torch.Tensor, parts: list[RuntimeValue]) -> torch.Tensor:
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
            if _is_moving(part):
                raise Unrewritable("a slice whose length changes from step to step has no fixed shape")
            held = held[(slice(None),) * place + (_to_static(part),)]
            place += 1
        else:
            held = held.select(place, part)
    return held


def _take(held: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.index.Tensor(held, [None] * dim + [index])  # type: ignore[no-any-return]


def _take_all(held: torch.Tensor, parts: list[RuntimeValue]) -> torch.Tensor:
    if any(isinstance(part, FixedLengthSlice) or part is None for part in parts):
        raise Unrewritable("a subscript has both an index tensor and a slice that moves")
    # Plain slices first; then all indices together. `held[...]` asks an index without dims for its number.
    slices = tuple(_to_static(part) if isinstance(part, slice | TensorSlice) else slice(None) for part in parts)
    index = [None if isinstance(part, slice | TensorSlice) else as_tensor(part) for part in parts]
    return torch.ops.aten.index.Tensor(held[slices], index)  # type: ignore[no-any-return]


_CONTAINER_TYPES, _KEY_TYPES = (dict, list), (int, str)
"""Tuples, because Dynamo reads `put` and does not support unions of types."""


def put(held: RuntimeValue, key: RuntimeValue, value: RuntimeValue, sign: str = "") -> RuntimeValue:
    """Return a copy of `held` after `held[key] = value`, or after an augmented assignment such as `+=`."""
    if isinstance(held, _CONTAINER_TYPES) and isinstance(key, _KEY_TYPES):
        copied: RuntimeValue = held.copy()
        copied[key] = OPERATORS[sign](copied[key], value) if sign else value
        return copied
    if not isinstance(held, torch.Tensor):
        raise Unrewritable(f"a write into a {type(held).__name__} by an index that is a tensor")
    parts = _expand_key(key, held.dim())
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
        inside, value = _locate_writes(at, dim, part, held.shape[dim], value)
        inside = inside.reshape([-1 if d == dim else 1 for d in range(held.dim())])
        mask = inside if mask is None else mask & inside
    new = OPERATORS[sign](held, value) if sign else value.expand(held.shape)
    new = new.to(held.dtype)
    return new if mask is None else where(mask, new, held)


def _locate_writes(
    at: torch.Tensor, dim: int, part: RuntimeValue, size: RuntimeValue, value: torch.Tensor
) -> tuple[RuntimeValue, torch.Tensor]:
    """Return a mask of the positions along `dim` that are written, and the value for each position."""
    if not isinstance(part, (slice, FixedLengthSlice, TensorSlice)):
        part = as_tensor(part)
        return at == torch.where(part < 0, part + size, part), value
    if isinstance(part, FixedLengthSlice):
        start, stop, step = part.start, part.start + part.length, 1
    else:
        start = 0 if part.start is None else part.start
        stop = size if part.stop is None else part.stop
        step = 1 if part.step is None else part.step
    start, stop = _resolve_negative(start, size), _resolve_negative(stop, size)
    inside = (at >= start) & (at < stop)
    if step != 1:
        inside = inside & ((at - start) % step == 0)
    if not (isinstance(part, TensorSlice) and part.is_aligned) and value.shape[dim] != 1:
        where = torch.clamp((at - start) // step, min=0, max=value.shape[dim] - 1)
        value = _take(value, dim, where)
    return inside, value


def _resolve_negative(bound: RuntimeValue, size: RuntimeValue) -> RuntimeValue:
    if isinstance(bound, torch.Tensor):
        return torch.where(bound < 0, bound + size, bound)
    return bound + size if isinstance(bound, int) and bound < 0 else bound


def _put_by_tensor(held: torch.Tensor, parts: list[RuntimeValue], value: RuntimeValue, sign: str) -> torch.Tensor:
    key = tuple(parts)
    new = held.clone()
    new[key] = OPERATORS[sign](held[key], value) if sign else value
    return new


class ChosenModules:
    """Modules from which a tensor chooses one. All of them run, and the result of the chosen one is returned."""

    def __init__(self, modules: tuple[RuntimeValue, ...], index: torch.Tensor) -> None:
        self.modules, self.index = modules, index

    def __call__(self, *args: object, **kwargs: object) -> RuntimeValue:
        return pick([module(*args, **kwargs) for module in self.modules], self.index)

    def __getattr__(self, name: str) -> RuntimeValue:
        values = [getattr(module, name) for module in self.modules]
        if isinstance(values[0], (torch.Tensor, int, float, tuple)):
            return pick(values, self.index)
        return ChosenModules(tuple(values), self.index)


def choose_by_name(held: RuntimeValue, index: torch.Tensor) -> ChosenModules:
    """Return `held[str(index)]`, where the names must be numbers."""
    names = list(held.keys())
    if not all(str(name).isdigit() for name in names):
        raise Unrewritable("the modules are chosen by names that are not numbers")
    numbers = torch.tensor([int(name) for name in names], device=index.device)
    position = (numbers == index.unsqueeze(-1)).to(torch.int64).argmax(-1)
    return ChosenModules(tuple(held[name] for name in names), position)


def pick(values: list[RuntimeValue], index: torch.Tensor) -> RuntimeValue:
    """Return the value at the index, out of tensors, numbers, or tuples or dicts of the same structure."""
    if isinstance(values[0], (tuple, list)):
        return type(values[0])([pick(list(column), index) for column in zip(*values, strict=True)])
    if isinstance(values[0], dict):
        return {key: pick([value[key] for value in values], index) for key in values[0]}
    return _take(torch.stack([as_tensor(value) for value in values]), 0, index)
