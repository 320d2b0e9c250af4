"""Complex tensors as two real ones, and the rules of operators that do the same to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

RuleValue: TypeAlias = Any
"""A value that a rule takes or returns: `Parts`, a real tensor, a number, the graph's node of one, or a list."""


class Parts(NamedTuple):
    """A complex tensor as two real ones of the same shape."""

    real: torch.Tensor
    imag: torch.Tensor


Rule = Callable[..., RuleValue]


def split_parts(value: RuleValue) -> RuleValue:
    """Return the parts of a number, of a real tensor or of a list; `Parts` stay as they are."""
    if isinstance(value, Parts):
        return value
    if isinstance(value, complex):
        return Parts(torch.tensor(value.real), torch.tensor(value.imag))
    if isinstance(value, torch.Tensor):
        return Parts(value, torch.zeros_like(value))
    return value


def join_parts(parts: Parts) -> torch.Tensor:
    return torch.view_as_complex(torch.stack([parts.real, parts.imag], -1))


def take_parts(value: torch.Tensor) -> Parts:
    pairs = torch.view_as_real(value.resolve_conj())
    return Parts(pairs.select(-1, 0), pairs.select(-1, 1))


def get_first_part(value: RuleValue) -> torch.Tensor:
    return value.real if isinstance(value, Parts) else value


def choose_part(value: RuleValue, part: int) -> RuleValue:
    if isinstance(value, Parts):
        return value[part]
    if isinstance(value, complex):
        return (value.real, value.imag)[part]
    if isinstance(value, list | tuple):
        return [choose_part(item, part) for item in value]
    return value


def make_part_by_part(operator: Callable[..., RuleValue]) -> Rule:
    """Return the rule of an operator that is applied to each part alike, since it moves, selects or adds numbers."""

    def apply(*args: RuleValue, **named: RuleValue) -> RuleValue:
        if named.get("dtype") is not None and not named["dtype"].is_complex:
            return NotImplemented
        results = []
        for part in (0, 1):
            settings = {name: choose_part(value, part) for name, value in named.items()}
            if settings.get("dtype") is not None:
                settings["dtype"] = settings["dtype"].to_real()
            results.append(operator(*(choose_part(value, part) for value in args), **settings))
        real, imag = results
        if isinstance(real, list | tuple):
            return [Parts(*pair) for pair in zip(real, imag, strict=True)]
        return Parts(real, imag)

    return apply


def make_writer(operator: Callable[..., RuleValue], sources: Sequence[int]) -> Rule:
    """Return the rule of an operator that writes tensors into another. Real tensors get an imaginary part of zero."""
    plain = make_part_by_part(operator)

    def apply(*args: RuleValue, **named: RuleValue) -> RuleValue:
        args = tuple(split_parts(value) if place in sources else value for place, value in enumerate(args))
        return plain(*args, **named)

    return apply


def make_joiner(operator: Callable[..., RuleValue]) -> Rule:
    plain = make_part_by_part(operator)
    return lambda tensors, *settings, **named: plain([split_parts(value) for value in tensors], *settings, **named)
