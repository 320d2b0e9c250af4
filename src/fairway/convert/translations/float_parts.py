"""Mantissas, exponents and neighbors of floating-point numbers, written in torch and computed exactly in double."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fairway.torch_internals import OpOverload, Untyped


def _scale(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Return x times a power of two, in two steps, so that the power itself does not overflow."""
    half = torch.floor(exponent / 2)
    return x * torch.exp2(half) * torch.exp2(exponent - half)


def _split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mantissas from a half to one, and exponents, for doubles that are neither zero nor infinite.

    A logarithm may be off by one next to a power of two.
    """
    exponent = torch.floor(torch.log2(x.abs())) + 1
    mantissa = _scale(x, -exponent)
    too_large, too_small = mantissa.abs() >= 1, mantissa.abs() < 0.5
    mantissa = torch.where(too_large, mantissa / 2, torch.where(too_small, mantissa * 2, mantissa))
    return mantissa, exponent + too_large.double() - too_small.double()


def frexp(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = self.double()
    is_ordinary = (x != 0) & torch.isfinite(x)
    mantissa, exponent = _split(torch.where(is_ordinary, x, 1.0))
    mantissa = torch.where(is_ordinary, mantissa, x)
    return mantissa.to(self.dtype), torch.where(is_ordinary, exponent, 0.0).to(torch.int32)


_DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""The binary digits of a mantissa."""


def nextafter(self: torch.Tensor, other: torch.Tensor) -> Untyped:
    """Add the distance to the next number. A double's neighbors cannot be computed in double."""
    if self.dtype not in _DIGITS:
        return NotImplemented
    kind = torch.finfo(self.dtype)
    x, goal = self.double(), other.double()
    least = kind.smallest_normal * 2.0 ** (1 - _DIGITS[self.dtype])
    is_ordinary = (x != 0) & torch.isfinite(x)
    mantissa, exponent = _split(torch.where(is_ordinary, x, 1.0))
    is_up = goal > x
    # Below a power of two, numbers are twice as close.
    is_closer = (mantissa.abs() == 0.5) & (is_up == (x < 0))
    distance = torch.exp2(exponent - _DIGITS[self.dtype] - is_closer.double()).clamp(min=least)
    moved = x + torch.where(is_up, distance, -distance)
    moved = torch.where(x == 0, torch.where(is_up, least, -least), moved)
    moved = torch.where(torch.isinf(x), torch.where(x > 0, kind.max, -kind.max), moved)
    moved = torch.where(x == goal, goal, moved)
    return torch.where(torch.isnan(x) | torch.isnan(goal), float("nan"), moved).to(self.dtype)


DECOMPOSITIONS: dict[OpOverload, Callable[..., Untyped]] = {
    torch.ops.aten.frexp.Tensor: frexp,
    torch.ops.aten.nextafter.default: nextafter,
}
"""Functions of torch by the operator that they compute."""
