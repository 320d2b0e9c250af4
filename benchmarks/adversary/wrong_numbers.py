"""Wrong files at magnitudes that a plain draw does not reach: tails, epsilons, tiny and huge values."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from torch import nn

LINE = "x: float32[batch, 6]"
BATCH = {"batch": (1, 4)}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def magnitudes(*scales):
    return lambda: [{"x": torch.randn(2, 6) * s} for s in (1.0, *scales)]


def values(*given):
    return lambda: [{"x": torch.randn(2, 6)}, {"x": torch.tensor([[*given, *[0.5] * 6][:6]])}]


def pair(name, right, mistakes, probes, category, line=LINE, elementwise=True, **settings):
    wrong(
        lambda: Function(right),
        category,
        line,
        bounds=BATCH,
        probes=probes,
        prefix=name,
        elementwise=elementwise,
        forwards={title: (lambda f: lambda self, x: f(x))(function) for title, function in mistakes.items()},
        **settings,
    )


pair(
    "erfc tail",
    torch.erfc,
    {
        "zero beyond 2": lambda x: torch.where(x > 2, 0.0, torch.erfc(x)),
        "by a series": lambda x: torch.where(x > 1, torch.exp(-x * x) / x / 1.7724539, torch.erfc(x)),
    },
    values(2.1, 2.4, 1.5),
    "tails",
)
pair(
    "log1p",
    torch.log1p,
    {"x below 0.1": lambda x: torch.where(x.abs() < 0.1, x, torch.log1p(x))},
    values(0.09, -0.08, 0.05),
    "tails",
    line="x: float32[batch, 6] in -0.5..5",
)
pair(
    "expm1",
    torch.expm1,
    {"x below 0.1": lambda x: torch.where(x.abs() < 0.1, x, torch.expm1(x))},
    values(0.09, -0.08, 0.05),
    "tails",
)
pair(
    "sigmoid tail",
    torch.sigmoid,
    {
        "clamped at -6": lambda x: torch.sigmoid(x.clamp(min=-6.0)),
        "one above 6": lambda x: torch.where(x > 6, 1.01, torch.sigmoid(x)),
    },
    values(-8.0, -6.9, 7.0),
    "tails",
)
pair(
    "log sigmoid",
    F.logsigmoid,
    {"log of sigmoid": lambda x: torch.log(torch.sigmoid(x))},
    values(-120.0, -95.0, 20.0, -200.0),
    "tails",
)
pair(
    "softplus tail",
    F.softplus,
    {"log(1 + exp)": lambda x: torch.log(1 + torch.exp(x))},
    values(-18.0, -25.0, 95.0, -40.0),
    "tails",
)
pair(
    "silu tail",
    F.silu,
    {"zero below -5": lambda x: torch.where(x < -5, 0.0, F.silu(x)), "hard": F.hardswish},
    values(-5.5, -6.0, 4.0),
    "tails",
)
pair(
    "tanh near zero",
    torch.tanh,
    {
        "x within 0.1": lambda x: torch.where(x.abs() < 0.1, x, torch.tanh(x)),
        "linear within 1e-2, 0.99": lambda x: torch.where(x.abs() < 1e-2, x * 0.99, torch.tanh(x)),
    },
    values(0.09, -0.08, 0.005, 1e-4),
    "tails",
)
pair(
    "asinh",
    torch.asinh,
    {"log formula": lambda x: torch.log(x + torch.sqrt(x * x + 1))},
    values(-3000.0, 1e-5, -1e5, 1e-7),
    "tails",
)
pair(
    "atan2",
    lambda x: torch.atan2(x, x.flip(-1)),
    {"atan of the ratio": lambda x: torch.atan(x / x.flip(-1))},
    values(1.0, -1.0, -2.0, -0.5, 0.0, -3.0),
    "tails",
)

pair(
    "eps in sqrt",
    lambda x: torch.sqrt(x * x + 1e-12),
    {"1e-6 for 1e-12": lambda x: torch.sqrt(x * x + 1e-6), "no epsilon, plus 1e-3": lambda x: x.abs() + 1e-3},
    magnitudes(1e-4, 1e-5),
    "tiny and huge",
)
pair(
    "rms norm",
    lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    {
        "epsilon 1e-8": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-8),
        "epsilon 1e-5": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5),
        "epsilon outside": lambda x: x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6),
    },
    magnitudes(1e-3, 1e-4, 1e-2),
    "epsilons",
)
pair(
    "normalize",
    lambda x: F.normalize(x, dim=-1, eps=1e-12),
    {
        "epsilon added 1e-5": lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-5),
        "epsilon 1e-4": lambda x: F.normalize(x, dim=-1, eps=1e-4),
        "no epsilon": lambda x: x / x.norm(dim=-1, keepdim=True),
    },
    lambda: [*magnitudes(1e-5, 1e-3)(), {"x": torch.zeros(2, 6)}],
    "epsilons",
)
pair(
    "log mel",
    lambda x: torch.log(x.abs().clamp(min=1e-10)),
    {
        "floor 1e-5": lambda x: torch.log(x.abs().clamp(min=1e-5)),
        "offset 1e-10": lambda x: torch.log(x.abs() + 1e-6),
        "floor 1e-12": lambda x: torch.log(x.abs().clamp(min=1e-12)),
    },
    lambda: [*magnitudes(1e-6, 1e-8)(), {"x": torch.zeros(1, 6)}],
    "epsilons",
)
pair(
    "instance norm",
    lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5),
    {
        "population deviation": lambda x: (
            (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + 1e-5)
        ),
        "epsilon 1e-3": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-3),
    },
    lambda: [*magnitudes(1e-3, 1e-5)(), {"x": torch.ones(2, 6) * 3}],
    "epsilons",
    elementwise=False,
)
pair(
    "flushed",
    lambda x: x * 2,
    {
        "below 1e-6 is 0": lambda x: torch.where(x.abs() < 1e-6, 0.0, x * 2),
        "below 1e-20 is 0": lambda x: torch.where(x.abs() < 1e-20, 0.0, x * 2),
        "below 1e-30 is 0": lambda x: torch.where(x.abs() < 1e-30, 0.0, x * 2),
    },
    magnitudes(1e-7, 1e-22, 1e-32),
    "tiny and huge",
)
pair(
    "within 30",
    lambda x: x * 0.5 + 1,
    {
        "clamped at 30": lambda x: x.clamp(-30, 30) * 0.5 + 1,
        "clamped at 150": lambda x: x.clamp(-150, 150) * 0.5 + 1,
        "bent beyond 1e5": lambda x: torch.where(x.abs() > 1e5, x * 0.25, x * 0.5 + 1),
        "above 120 only": lambda x: torch.where(x > 121, x, x * 0.5 + 1),
    },
    magnitudes(100.0, 1e3, 1e6),
    "tiny and huge",
)
