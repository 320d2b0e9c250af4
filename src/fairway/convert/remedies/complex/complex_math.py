"""Arithmetic and elementary functions of complex tensors, on their real and imaginary parts."""

from __future__ import annotations

import math

import torch

from fairway.convert.remedies.complex.complex_parts import (
    Parts,
    RuleValue,
    split_parts,
)


def as_parts(value: RuleValue) -> RuleValue:
    """Return parts as `split_parts` does; plain numbers stay plain numbers in each part."""
    if isinstance(value, complex):
        return Parts(value.real, value.imag)  # type: ignore[arg-type]
    if isinstance(value, torch.Tensor | Parts):
        return split_parts(value)
    return Parts(value, 0)  # type: ignore[arg-type]  # plain numbers, as for complex ones above


def add(first: RuleValue, other: RuleValue, alpha: RuleValue = 1, *, sign: int = 1) -> Parts:
    first, other = as_parts(first), as_parts(other)
    factor = sign if alpha == 1 else sign * alpha
    if factor == 1:
        return Parts(first.real + other.real, first.imag + other.imag)
    if factor == -1:
        return Parts(first.real - other.real, first.imag - other.imag)
    return Parts(first.real + factor * other.real, first.imag + factor * other.imag)


def subtract(first: RuleValue, other: RuleValue, alpha: RuleValue = 1) -> Parts:
    return add(first, other, alpha, sign=-1)


def subtract_from(first: RuleValue, other: RuleValue, alpha: RuleValue = 1) -> Parts:
    return add(other, first, alpha, sign=-1)


def multiply(first: RuleValue, other: RuleValue) -> Parts:
    if not isinstance(first, Parts | complex):
        first, other = other, first
    first = as_parts(first)
    if not isinstance(other, Parts | complex):
        return Parts(first.real * other, first.imag * other)
    other = as_parts(other)
    return Parts(
        first.real * other.real - first.imag * other.imag,
        first.real * other.imag + first.imag * other.real,
    )


def divide(first: RuleValue, other: RuleValue, rounding_mode: str | None = None) -> RuleValue:
    if rounding_mode is not None:
        return NotImplemented
    if not isinstance(other, Parts | complex):
        first = as_parts(first)
        return Parts(first.real / other, first.imag / other)
    other = as_parts(other)
    if not isinstance(other.real, torch.Tensor):
        return multiply(first, 1 / complex(other.real, other.imag))
    # The divisor is scaled first, so that its square neither overflows nor vanishes.
    scale = torch.maximum(other.real.abs(), other.imag.abs())
    real, imag = other.real / scale, other.imag / scale
    square = (real * real + imag * imag) * scale
    turned = multiply(first, Parts(real, -imag))
    return Parts(turned.real / square, turned.imag / square)


def conjugate(value: RuleValue) -> RuleValue:
    return Parts(value.real, -value.imag) if isinstance(value, Parts) else value


def compute_length(value: Parts) -> torch.Tensor:
    return torch.sqrt(value.real * value.real + value.imag * value.imag)


def compute_angle(value: Parts) -> torch.Tensor:
    return torch.atan2(value.imag, value.real)


def make_polar(absolute: torch.Tensor, angle: torch.Tensor) -> Parts:
    return Parts(absolute * torch.cos(angle), absolute * torch.sin(angle))


def exponentiate(value: Parts) -> Parts:
    return make_polar(torch.exp(value.real), value.imag)


def take_logarithm(value: Parts) -> Parts:
    return Parts(torch.log(compute_length(value)), compute_angle(value))


def compute_sign(value: Parts) -> Parts:
    length = compute_length(value)
    divisor = torch.where(length == 0, torch.ones_like(length), length)
    return Parts(value.real / divisor, value.imag / divisor)


def take_root(value: Parts) -> Parts:
    return make_polar(torch.sqrt(compute_length(value)), compute_angle(value) / 2)


def raise_to_power(value: RuleValue, exponent: RuleValue) -> RuleValue:
    if isinstance(value, Parts) and isinstance(exponent, int) and 1 <= exponent <= 8:
        result = value
        for _ in range(exponent - 1):
            result = multiply(result, value)
        return result
    if isinstance(value, Parts) and isinstance(exponent, int | float):
        return make_polar(torch.pow(compute_length(value), exponent), compute_angle(value) * exponent)
    if isinstance(value, int | float) and value > 0:
        return exponentiate(multiply(exponent, math.log(value)))
    if isinstance(value, Parts):
        return exponentiate(multiply(take_logarithm(value), exponent))
    return NotImplemented


def compute_cosine(value: Parts) -> Parts:
    return Parts(
        torch.cos(value.real) * torch.cosh(value.imag),
        -torch.sin(value.real) * torch.sinh(value.imag),
    )


def compute_sine(value: Parts) -> Parts:
    return Parts(
        torch.sin(value.real) * torch.cosh(value.imag),
        torch.cos(value.real) * torch.sinh(value.imag),
    )


def compute_sigmoid(value: Parts) -> RuleValue:
    return divide(1.0, add(exponentiate(Parts(-value.real, -value.imag)), 1.0))


def compute_tanh(value: Parts) -> Parts:
    twice = compute_sigmoid(Parts(2 * value.real, 2 * value.imag))
    return Parts(2 * twice.real - 1, 2 * twice.imag)


def compare_equal(first: RuleValue, other: RuleValue) -> torch.Tensor:
    first, other = as_parts(first), as_parts(other)
    equal: torch.Tensor = (first.real == other.real) & (first.imag == other.imag)
    return equal


def select(condition: torch.Tensor, first: RuleValue, other: RuleValue) -> Parts:
    first, other = as_parts(first), as_parts(other)
    return Parts(torch.where(condition, first.real, other.real), torch.where(condition, first.imag, other.imag))


def fill_masked(value: Parts, mask: torch.Tensor, filling: RuleValue) -> Parts:
    filling = as_parts(filling)
    return Parts(
        torch.masked_fill(value.real, mask, filling.real),
        torch.masked_fill(value.imag, mask, filling.imag),
    )
