"""Right files of models whose state does not matter."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import right
from right_branches import BATCH, LINE, scales
from torch import nn


@right("state that does not matter", "the counter is not part of an answer", LINE, bounds=BATCH, probes=scales)
class CountsCalls(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


@right(
    "state that does not matter",
    "the cache only saves work",
    "x: float32[batch, time, 4]",
    bounds={"batch": (1, 3), "time": (1, 32)},
    routes=("dynamo",),
    probes=lambda: [{"x": torch.randn(2, n, 4)} for n in (10, 1, 32)],
)
class CachesAngles(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("angles", torch.arange(32.0)[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001]), False)

    def forward(self, x):
        return x * self.angles[: x.shape[1]].cos()


@right(
    "state that does not matter",
    "the statistics are frozen in eval",
    "x: float32[batch, 6]",
    bounds=BATCH,
    probes=scales,
)
class FrozenStatistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.norm.running_mean.normal_()

    def forward(self, x):
        return self.norm(F.dropout(x, 0.5, self.training))


@right("state that does not matter", "the last answer is kept for a plot", LINE, bounds=BATCH, probes=scales)
class KeepsLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.history = []

    def forward(self, x):
        out = torch.tanh(self.linear(x))
        self.history.append(tuple(out.shape))
        del self.history[:-3]
        return out


@right("state that does not matter", "noise is for training only", LINE, bounds=BATCH, probes=scales)
class NoiseInTraining(nn.Module):
    def forward(self, x):
        if self.training:
            x = x + torch.randn_like(x)
        return x.relu() * 2
