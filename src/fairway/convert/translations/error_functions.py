"""Error functions far from zero, written in torch and computed in double.

torch.onnx computes erfcx as exp(x²) erfc(x), which is infinity times zero beyond 9, and log_ndtr as the logarithm of a
probability that underflowed. ONNX Runtime has no Erf for doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from fairway.convert.translations.bessel import compute_in_double
from fairway.convert.translations.fitted_polynomials import evaluate
from fairway.torch_internals import OpOverload


def _positive_erfcx(a: torch.Tensor) -> torch.Tensor:
    y = 4 / (4 + a)
    near, far = evaluate("erfcx", y.clamp(min=0.5)), evaluate("erfcx_far", y.clamp(max=0.5))
    return torch.where(a < 4, near, far) / (1 + 2 * a)


def erfcx(x: torch.Tensor) -> torch.Tensor:
    above = _positive_erfcx(x.abs())
    return torch.where(x < 0, 2 * torch.exp(x * x) - above, above)


def erfc(x: torch.Tensor) -> torch.Tensor:
    above = torch.exp(-x * x) * _positive_erfcx(x.abs())
    return torch.where(x < 0, 2 - above, above)


def erf(x: torch.Tensor) -> torch.Tensor:
    near = evaluate("erf", x.clamp(-1, 1) ** 2) * x
    return torch.where(x.abs() < 1, near, torch.where(x < 0, erfc(-x) - 1, 1 - erfc(x)))


def log_ndtr(x: torch.Tensor) -> torch.Tensor:
    z = x / math.sqrt(2)
    below = torch.log(_positive_erfcx(z.clamp(max=0).abs()) / 2) - z * z
    return torch.where(x < -1, below, _log1p(-erfc(z.clamp(min=-1)) / 2))


def _log1p(y: torch.Tensor) -> torch.Tensor:
    """Compute log(1 + y) for y near zero. ONNX has no such operator."""
    up = 1 + y
    away = torch.where(up == 1, 2.0, up)
    return torch.where(up == 1, y, torch.log(away) * y / (away - 1))


def ndtr(x: torch.Tensor) -> torch.Tensor:
    return erfc(-x / math.sqrt(2)) / 2


DECOMPOSITIONS: dict[OpOverload, Callable[..., torch.Tensor]] = {
    operator: compute_in_double(function)
    for operator, function in {
        torch.ops.aten.special_erfcx.default: erfcx,
        torch.ops.aten.special_log_ndtr.default: log_ndtr,
    }.items()
}
"""Functions of torch by the operator that they compute."""
