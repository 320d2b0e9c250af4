"""Wrong files where PyTorch overflows, gives NaN, or leaves integers undecided."""

from __future__ import annotations

import torch
from wrong_numbers import magnitudes, pair, values

pair(
    "softmax by hand",
    lambda x: torch.softmax(x, -1),
    {"without the maximum": lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)},
    magnitudes(50.0, 200.0),
    "overflow",
)
pair(
    "logsumexp",
    lambda x: torch.logsumexp(x, -1),
    {
        "by hand": lambda x: torch.log(torch.exp(x).sum(-1)),
        "capped at 88": lambda x: torch.log(torch.exp(x.clamp(max=80.0)).sum(-1)),
    },
    magnitudes(100.0, 300.0),
    "overflow",
)
pair(
    "exp overflow",
    torch.exp,
    {
        "capped at e^80": lambda x: torch.exp(x.clamp(max=80.0)),
        "0 on overflow": lambda x: torch.where(x > 88, 0.0, torch.exp(x)),
        "NaN on overflow": lambda x: torch.where(x > 88, float("nan"), torch.exp(x)),
    },
    values(95.0, 100.0, 200.0),
    "overflow",
)
pair(
    "square overflow",
    lambda x: x * x,
    {
        "capped at 1e20": lambda x: (x * x).clamp(max=1e20),
        "0 on overflow": lambda x: torch.where(x.abs() > 1.9e19, 0.0, x * x),
    },
    magnitudes(1e12, 1e22),
    "overflow",
)
pair(
    "inverse",
    lambda x: 1 / x,
    {"0 at zero": lambda x: torch.where(x == 0, 0.0, 1 / x), "capped": lambda x: (1 / x).clamp(-1e6, 1e6)},
    values(0.0, 1e-8, -1e-9),
    "overflow",
)
pair(
    "zero over zero",
    lambda x: x / x.abs().sum(-1, keepdim=True),
    {
        "0 for NaN": lambda x: torch.nan_to_num(x / x.abs().sum(-1, keepdim=True)),
        "epsilon 1e-6": lambda x: x / (x.abs().sum(-1, keepdim=True) + 1e-6),
    },
    lambda: [*magnitudes(1e-6)(), {"x": torch.zeros(2, 6)}],
    "NaN and infinities",
)
pair(
    "sqrt of negatives",
    lambda x: torch.sqrt(x),
    {"0 for NaN": lambda x: torch.sqrt(x.clamp(min=0)), "of the absolute value": lambda x: torch.sqrt(x.abs())},
    values(-1.0, 4.0),
    "NaN and infinities",
)
pair(
    "maximum with NaN",
    lambda x: torch.maximum(torch.log(x), x),
    {"NaN is dropped": lambda x: torch.where(x > 0, torch.maximum(torch.log(x.abs()), x), x)},
    values(-1.0, 2.0),
    "NaN and infinities",
)

pair(
    "fine ticks",
    lambda x: (x * 1e12).long(),
    {"0 throughout": lambda x: (x * 0).long(), "the sign": lambda x: torch.sign(x).long()},
    magnitudes(3.0),
    "undecided integers",
)
pair(
    "hash of floats",
    lambda x: (x * 43758.5453).frac(),
    {"0 throughout": lambda x: x * 0, "without frac": lambda x: x * 43758.5453},
    magnitudes(3.0),
    "undecided integers",
)
pair(
    "counts of a sum",
    lambda x: (x.sum(-1) * 1e5).round().long(),
    {"1e4": lambda x: (x.sum(-1) * 1e4).round().long() * 10 + 3, "half": lambda x: (x.sum(-1) * 5e4).round().long()},
    magnitudes(5.0),
    "undecided integers",
)
