"""Traps of models with state, and of models that draw random numbers in eval."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import trap
from torch import nn
from traps_masks import BATCH, SEQ, X6, features

COUNTS = "a file that answers as the first call is wrong at later calls"


@trap("state", COUNTS, X6, bounds=BATCH, probes=features(1.0, 1.0, 1.0, 1.0, 1.0), sequence=True)
class CallCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 3:
            return x * 0.5
        return x


@trap("state", COUNTS, X6, bounds=BATCH, probes=features(1.0, 1.0, 1.0), sequence=True)
class RunningMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x - self.mean


@trap(
    "state",
    COUNTS,
    example=lambda: (torch.zeros(2, 6),),
    dims={"x": "batch 6"},
    bounds=BATCH,
    probes=features(1.0, 1.0, 5.0),
    sequence=True,
)
class FrameDifference(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(1, 6))

    def forward(self, x):
        out = x - self.last
        self.last = x[-1:].clone()
        return out


@trap(
    "state",
    "Glow's ActNorm takes its scale from the first batch it sees",
    X6,
    bounds=BATCH,
    probes=features(3.0, 1.0, 0.1),
    sequence=True,
)
class ActNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.ready = False
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x):
        if not self.ready:
            self.scale = 1 / (x.abs().amax(0) + 1e-3)
            self.ready = True
        return x * self.scale


@trap(
    "state",
    "the cache by size only saves work: a right file exists",
    "x: float32[batch, seq, 4]",
    bounds=SEQ,
    probes=lambda: [{"x": torch.randn(2, n, 4)} for n in (6, 2, 12, 6)],
    sequence=True,
)
class CacheBySize(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = {}

    def forward(self, x):
        n = x.shape[1]
        if n not in self.cache:
            self.cache[n] = torch.arange(n, dtype=torch.float32)[:, None] / 10
        return x * self.cache[n].cos()


@trap(
    "state",
    "the table is made at the first length and stretched for others",
    "x: float32[batch, seq, 4]",
    bounds=SEQ,
    probes=lambda: [{"x": torch.randn(2, n, 4)} for n in (6, 2, 12, 7)],
    sequence=True,
    no_right_file="the answer depends on the length of the first call",
)
class FirstLength(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.linspace(0, 1, x.shape[1]) ** 2
        table = F.interpolate(self.table[None, None], size=x.shape[1], mode="linear", align_corners=True)
        return x + table[0, 0, :, None]


RANDOM = "two calls on one input differ"


@trap("random", "functional dropout is on in eval", X6, bounds=BATCH, probes=features(1.0, 1.0), no_right_file=RANDOM)
class DropoutAlways(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.1)


@trap(
    "random",
    "noise is drawn for silence only",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.zeros(2, 6)}],
    no_right_file="silence is answered by noise",
)
class ComfortNoise(nn.Module):
    def forward(self, x):
        if x.abs().max() < 1e-5:
            return torch.randn_like(x) * 0.1
        return x * 2


@trap(
    "random",
    "a model left in training mode is exported in eval mode, and the result says so",
    X6,
    bounds={"batch": (2, 6)},
    training=True,
    must_name="norm",
    probes=features(1.0, 4.0),
    sequence=False,
)
class LeftInTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.norm(x)
