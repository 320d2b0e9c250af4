"""Wrong files that differ beyond a limit, or where two inputs are equal."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from torch import nn
from wrong_comparisons import BATCH, pair

EDGES = (6.0, -6.0, 3.0, -3.0, 8.0, -8.0)
pair(
    "relu6",
    F.relu6,
    {"limit 5.9": lambda x: x.clamp(0.0, 5.9), "limit 8": lambda x: x.clamp(0, 8)},
    *EDGES,
    category="limits",
)
pair("hardtanh", F.hardtanh, {"from -1.2": lambda x: x.clamp(-1.2, 1.0)}, *EDGES, category="limits")
pair("hardsigmoid", F.hardsigmoid, {"slope 0.2": lambda x: (0.2 * x + 0.5).clamp(0, 1)}, *EDGES, category="limits")
pair("hardswish", F.hardswish, {"no upper limit": lambda x: x * ((x + 3) / 6).clamp(min=0)}, *EDGES, category="limits")
pair(
    "clamp large",
    lambda x: x.clamp(-1e4, 1e4),
    {
        "clamp missing": lambda x: x + 0,
        "clamp 6e4": lambda x: x.clamp(-6e4, 6e4),
        "lower clamp missing": lambda x: x.clamp(max=1e4),
    },
    2e4,
    -2e4,
    1e5,
    category="limits",
)
pair(
    "clamp small",
    lambda x: 1 / x.abs().clamp(min=1e-4),
    {"clamp missing": lambda x: 1 / x.abs(), "clamp 1e-5": lambda x: 1 / x.abs().clamp(min=1e-5)},
    1e-6,
    0.0,
    2e-5,
    category="limits",
)
pair(
    "threshold op",
    lambda x: F.threshold(x, 0.1, 20.0),
    {"value 0": lambda x: F.threshold(x, 0.1, 0.0), "at 0": lambda x: F.threshold(x, 0.0, 20.0)},
    0.1,
    0.05,
    category="limits",
)
pair(
    "hardshrink",
    lambda x: F.hardshrink(x, 0.5),
    {"at the edge kept": lambda x: torch.where(x.abs() >= 0.5, x, 0.0), "soft": lambda x: F.softshrink(x, 0.5)},
    0.5,
    -0.5,
    category="limits",
)
pair(
    "softplus threshold",
    lambda x: F.softplus(x, beta=1.0, threshold=2.0),
    {"threshold 20": lambda x: F.softplus(x, 1.0, 20.0)},
    2.5,
    3.0,
    category="limits",
)
pair(
    "elu",
    lambda x: F.elu(x, 1.0),
    {"alpha 1.05": lambda x: F.elu(x, 1.05), "leaky beyond -5": lambda x: torch.where(x > -5, F.elu(x, 1.0), 0.2 * x)},
    -6.0,
    -9.0,
    category="limits",
)
pair(
    "huber",
    lambda x: torch.where(x.abs() <= 1.0, 0.5 * x**2, x.abs() - 0.5),
    {"delta 10": lambda x: torch.where(x.abs() <= 10.0, 0.5 * x**2, x.abs() - 0.5)},
    3.0,
    1.0,
    category="limits",
)
pair(
    "wrap angle",
    lambda x: torch.remainder(x + torch.pi, 2 * torch.pi) - torch.pi,
    {
        "one turn only": lambda x: torch.where(
            x > torch.pi, x - 2 * torch.pi, torch.where(x < -torch.pi, x + 2 * torch.pi, x)
        )
    },
    10.0,
    -10.0,
    20.0,
    category="limits",
)


class EqualInputs(nn.Module):
    def forward(self, a, b):
        if torch.equal(a, b):
            return torch.ones(a.shape[0])
        return F.cosine_similarity(a, b) * 0.9


class Nearest(nn.Module):
    def forward(self, a, b):
        gap = (a - b).abs()
        return torch.where(gap == 0, 1.0, 1 / (1 + gap))[..., 0], (a >= b).sum(-1)


def two():
    return lambda: [
        {"a": torch.randn(3, 6), "b": torch.randn(3, 6)},
        {"a": (t := torch.randn(3, 6)), "b": t.clone()},
        {"a": (t := torch.randn(2, 6)), "b": torch.cat([t[:1], torch.randn(1, 6)])},
    ]


AB = ("a: float32[batch, 6]", "b: float32[batch, 6]")
wrong(
    EqualInputs,
    "equal inputs",
    *AB,
    bounds=BATCH,
    probes=two(),
    forwards={
        "never equal": lambda self, a, b: F.cosine_similarity(a, b) * 0.9,
        "equal by row": lambda self, a, b: torch.where((a == b).all(-1), 1.0, F.cosine_similarity(a, b) * 0.9),
    },
)
wrong(
    Nearest,
    "equal inputs",
    *AB,
    bounds=BATCH,
    probes=two(),
    forwards={
        "> for >=": lambda self, a, b: (torch.where(a == b, 1.0, 1 / (1 + (a - b).abs()))[..., 0], (a > b).sum(-1)),
        "zero where equal": lambda self, a, b: (
            torch.where(a == b, 0.0, 1 / (1 + (a - b).abs()))[..., 0],
            (a >= b).sum(-1),
        ),
    },
)
