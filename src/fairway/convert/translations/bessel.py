"""Bessel functions and Airy's, written in torch and computed in double.

torch decomposes them to operators without a translation (prims). Near zero each is a polynomial of x², plus a logarithm
for those of the second kind; far from zero it is a wave or an exponential times polynomials of 1/x.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from fairway.convert.translations.fitted_polynomials import evaluate
from fairway.torch_internals import OpOverload

Function = Callable[[torch.Tensor], torch.Tensor]

_NEAR_LIMIT = 8.0
"""The size up to which polynomials of x² are used."""


def compute_in_double(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that computes in double, and returns the type of its arguments, or the default one."""

    def compute(*values: torch.Tensor) -> torch.Tensor:
        kind = torch.result_type(*values) if len(values) == 2 else values[0].dtype
        result = function(*(value.double() if isinstance(value, torch.Tensor) else value for value in values))
        return result.to(kind if kind.is_floating_point else torch.get_default_dtype())

    return compute


def _wave(a: torch.Tensor, order: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the functions of the first and second kind, for arguments of at least 8."""
    w = _NEAR_LIMIT / a
    p, q = evaluate(f"p{order}", w * w), evaluate(f"q{order}", w * w) * w
    angle = a - (2 * order + 1) * math.pi / 4
    scale = torch.sqrt(2 / math.pi / a)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def bessel_j0(x: torch.Tensor) -> torch.Tensor:
    a = x.abs()
    near = evaluate("j0", a.clamp(max=_NEAR_LIMIT) ** 2)
    far = _wave(a.clamp(min=_NEAR_LIMIT), 0)[0]
    return torch.where(a < _NEAR_LIMIT, near, far)


def bessel_j1(x: torch.Tensor) -> torch.Tensor:
    a = x.abs()
    near = evaluate("j1", a.clamp(max=_NEAR_LIMIT) ** 2) * a
    far = _wave(a.clamp(min=_NEAR_LIMIT), 1)[0]
    return torch.where(a < _NEAR_LIMIT, near, far) * torch.where(x < 0, -1.0, 1.0)


def bessel_y0(x: torch.Tensor) -> torch.Tensor:
    small = x.clamp(max=_NEAR_LIMIT)
    near = evaluate("y0", small**2) + 2 / math.pi * torch.log(small) * evaluate("j0", small**2)
    far = _wave(x.clamp(min=_NEAR_LIMIT), 0)[1]
    return _mark_pole(x, torch.where(x < _NEAR_LIMIT, near, far), -math.inf)


def bessel_y1(x: torch.Tensor) -> torch.Tensor:
    small = x.clamp(max=_NEAR_LIMIT)
    first = evaluate("j1", small**2) * small
    near = evaluate("y1", small**2) * small + 2 / math.pi * (torch.log(small) * first - 1 / small)
    far = _wave(x.clamp(min=_NEAR_LIMIT), 1)[1]
    return _mark_pole(x, torch.where(x < _NEAR_LIMIT, near, far), -math.inf)


def _mark_pole(x: torch.Tensor, value: torch.Tensor, pole: float) -> torch.Tensor:
    return torch.where(x == 0, pole, torch.where(x < 0, math.nan, value))


def bessel_i0e(x: torch.Tensor) -> torch.Tensor:
    a = x.abs()
    far = a.clamp(min=_NEAR_LIMIT)
    return torch.where(
        a < _NEAR_LIMIT, evaluate("i0e", a.clamp(max=_NEAR_LIMIT)), evaluate("i0e_far", 1 / far) / torch.sqrt(far)
    )


def bessel_i1e(x: torch.Tensor) -> torch.Tensor:
    a = x.abs()
    near, far = a.clamp(max=_NEAR_LIMIT), a.clamp(min=_NEAR_LIMIT)
    value = torch.where(a < _NEAR_LIMIT, evaluate("i1e", near) * near, evaluate("i1e_far", 1 / far) / torch.sqrt(far))
    return value * torch.where(x < 0, -1.0, 1.0)


def bessel_i0(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.abs()) * bessel_i0e(x)


def bessel_i1(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.abs()) * bessel_i1e(x)


def _second_kind(order: int, is_scaled: bool) -> Function:
    """Return the modified function of the second kind, if scaled times exp(x)."""

    def compute(x: torch.Tensor) -> torch.Tensor:
        small = x.clamp(max=2.0)
        if order == 0:
            near = evaluate("k0", small**2) - torch.log(small / 2) * bessel_i0(small)
        else:
            near = evaluate("k1", small**2) * small + torch.log(small / 2) * bessel_i1(small) + 1 / small
        inverse = 1 / x.clamp(min=2.0)
        wide = evaluate(f"k{order}e_far", inverse.clamp(min=1 / 8))
        wider = evaluate(f"k{order}e_farther", inverse.clamp(max=1 / 8))
        far = torch.where(x < _NEAR_LIMIT, wide, wider) * torch.sqrt(inverse)
        if is_scaled:
            near = near * torch.exp(small)
        else:
            far = far * torch.exp(-x)
        return _mark_pole(x, torch.where(x <= 2, near, far), math.inf)

    return compute


def spherical_bessel_j0(x: torch.Tensor) -> torch.Tensor:
    away = torch.where(x == 0, 1.0, x)
    return torch.where(x == 0, 1.0, torch.where(torch.isinf(x), 0.0, torch.sin(away) / away))


_AIRY_LIMIT = 3.0


def airy_ai(x: torch.Tensor) -> torch.Tensor:
    """Compute a polynomial near zero, a decay above, a wave below. PyTorch returns NaN for both infinities."""
    near = evaluate("airy", x.clamp(-_AIRY_LIMIT, _AIRY_LIMIT))
    z = x.abs().clamp(min=_AIRY_LIMIT)
    zeta = 2 / 3 * z * torch.sqrt(z)
    fourth = torch.sqrt(torch.sqrt(z)) * math.sqrt(math.pi)
    above = torch.exp(-zeta) / (2 * fourth) * evaluate("airy_decay", 1 / zeta)
    angle, u = zeta - math.pi / 4, 1 / (zeta * zeta)
    below = evaluate("airy_cos", u) * torch.cos(angle) + evaluate("airy_sin", u) / zeta * torch.sin(angle)
    value = torch.where(x.abs() < _AIRY_LIMIT, near, torch.where(x > 0, above, below / fourth))
    return torch.where(torch.isinf(x), math.nan, value)


_ATEN = torch.ops.aten

DECOMPOSITIONS: dict[OpOverload, Callable[..., torch.Tensor]] = {
    operator: compute_in_double(function)
    for operator, function in {
        _ATEN.special_airy_ai.default: airy_ai,
        _ATEN.special_bessel_j0.default: bessel_j0,
        _ATEN.special_bessel_j1.default: bessel_j1,
        _ATEN.special_bessel_y0.default: bessel_y0,
        _ATEN.special_bessel_y1.default: bessel_y1,
        _ATEN.i0.default: bessel_i0,
        _ATEN.special_i0e.default: bessel_i0e,
        _ATEN.special_i1.default: bessel_i1,
        _ATEN.special_i1e.default: bessel_i1e,
        _ATEN.special_modified_bessel_i0.default: bessel_i0,
        _ATEN.special_modified_bessel_i1.default: bessel_i1,
        _ATEN.special_modified_bessel_k0.default: _second_kind(0, is_scaled=False),
        _ATEN.special_modified_bessel_k1.default: _second_kind(1, is_scaled=False),
        _ATEN.special_scaled_modified_bessel_k0.default: _second_kind(0, is_scaled=True),
        _ATEN.special_scaled_modified_bessel_k1.default: _second_kind(1, is_scaled=True),
        _ATEN.special_spherical_bessel_j0.default: spherical_bessel_j0,
    }.items()
}
"""Functions of torch by the operator that they compute."""
