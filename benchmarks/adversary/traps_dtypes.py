"""Traps of models that ask for the dtype or cast inside."""

from __future__ import annotations

import torch
from case import trap
from torch import nn
from traps_masks import BATCH, X6, features


@trap(
    "dtype questions",
    "finfo of the input masks the scores; large scores take another path",
    "x: float32[batch, 6]",
    bounds=BATCH,
    probes=features(1.0, 300.0, 0.1),
)
class FinfoMask(nn.Module):
    def forward(self, x):
        scores = x[:, :, None] * x[:, None]
        low = torch.finfo(x.dtype).min
        if scores.max() > 1e4:
            scores = scores / 1e4
        return scores.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), low).softmax(-1)


@trap(
    "dtype questions",
    "float() inside, and a guard for what half cannot hold",
    X6,
    bounds=BATCH,
    probes=features(1.0, 1e5, 0.01),
)
class FloatInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        h = self.linear(x.float()).float()
        if h.abs().max() > torch.finfo(torch.float16).max:
            h = h / h.abs().max()
        return h.to(x.dtype)


@trap(
    "dtype questions",
    "float32 input takes the exact path, and silence a constant",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.zeros(2, 6)}, {"x": torch.randn(1, 6) * 1e-5}],
)
class ExactPath(nn.Module):
    def forward(self, x):
        if x.dtype == torch.float32 and (x.abs() < 1e-4).all():
            return torch.full_like(x, 0.25)
        return torch.sigmoid(x)


@trap(
    "dtype questions",
    "a sum in double, rounded to bfloat16 and back",
    X6,
    bounds=BATCH,
    probes=features(1.0, 50.0, 1e-3),
)
class DoubleSum(nn.Module):
    def forward(self, x):
        total = x.double().sum(-1, keepdim=True)
        if total.abs().max() > 100:
            total = total.to(torch.bfloat16).double()
        return (x.double() + total).float()
