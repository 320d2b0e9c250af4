"""Traps with a branch on values: thresholds, early returns, helpers, loops that stop by value."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import trap
from torch import nn

SIGNAL = "x: float32[batch, time]"
FEATURES = "x: float32[batch, 8]"
SMALL = {"batch": (1, 4), "time": (2, 60)}
BATCH = {"batch": (1, 4)}


def signals(*scales):
    """One probe per scale, at two sizes in turn."""
    return [{"x": torch.randn(2 + i % 2, 20 + 7 * i) * s} for i, s in enumerate(scales)]


def features(*scales):
    return [{"x": torch.randn(1 + i % 3, 8) * s} for i, s in enumerate(scales)]


@trap(
    "value branch",
    "a gate answers zeros on quiet input",
    SIGNAL,
    bounds=SMALL,
    probes=lambda: signals(1.0, 0.01, 0.003, 3.0),
)
class VoiceGate(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 3, padding=1)

    def forward(self, x):
        energy = x.pow(2).mean()
        if 0 < energy < 1e-3:
            return torch.zeros_like(x)
        return torch.tanh(self.conv(x[:, None])).mean(1) + 0.3


@trap(
    "value branch",
    "silence returns early, before the filter",
    SIGNAL,
    bounds=SMALL,
    probes=lambda: signals(1.0, 1e-6, 0.5),
)
class SilenceReturnsEarly(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.7))

    def forward(self, x):
        peak = x.abs().max().item()
        if peak < 1e-4:
            return x
        return torch.sigmoid(x / peak * self.gain)


@trap(
    "value branch",
    "a helper method returns a bool; clipped audio takes the repair path",
    example=lambda: {"audio": torch.rand(2, 30) * 0.8 - 0.4},
    dims={"audio": "batch time"},
    bounds=SMALL,
    probes=lambda: [
        {"audio": torch.rand(2, 30) - 0.5},
        {"audio": torch.cat([torch.rand(2, 20) - 0.5, torch.ones(2, 3)], 1)},
        {"audio": torch.rand(1, 11) * 3 - 1.5},
    ],
)
class ClipRepair(nn.Module):
    def is_clipped(self, audio):
        return bool((audio.abs() >= 1.0).any())

    def forward(self, audio):
        if self.is_clipped(audio):
            audio = F.avg_pool1d(audio[:, None], 3, 1, 1)[:, 0]
        return audio - audio.mean(-1, keepdim=True)


@trap(
    "value branch",
    "exposure correction for bright images only",
    "image: float32[batch, 3, 8, 8] in 0..1",
    bounds=BATCH,
    probes=lambda: [
        {"image": torch.rand(2, 3, 8, 8)},
        {"image": 0.9 + 0.1 * torch.rand(1, 3, 8, 8)},
        {"image": 0.02 * torch.rand(3, 3, 8, 8)},
    ],
)
class ExposureCorrection(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image):
        brightness = float(image.mean())
        if brightness > 0.85:
            image = image**2.2
        elif brightness < 0.05:
            image = image.sqrt()
        return self.conv(image).relu()


@trap(
    "value branch",
    "an early exit after the first block when it is confident (BranchyNet)",
    example=lambda: (torch.randn(1, 8),),
    dims={"x": "batch 8"},
    bounds={"batch": (1, 1)},
    probes=lambda: [
        {"x": torch.randn(1, 8)},
        {"x": torch.tensor([[9.0, -9.0, 9.0, 9.0, -9.0, 9.0, 9.0, -9.0]])},
        {"x": torch.randn(1, 8) * 40},
        {"x": torch.randn(1, 8) * 0.1},
    ],
)
class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.exit = nn.Linear(8, 8), nn.Linear(8, 4)
        self.rest = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        h = torch.relu(self.first(x))
        early = self.exit(h).softmax(-1)
        if early.max() > 0.95:
            return early
        return self.rest(h).softmax(-1)


@trap(
    "value branch",
    "a branch in a nested function; large sums are damped",
    FEATURES,
    bounds=BATCH,
    probes=lambda: features(1.0, 40.0, 0.2, 400.0),
)
class NestedDamping(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        def damp(values):
            total = values.abs().sum()
            if total > 700:
                return values / total
            return values

        return self.linear(damp(x))


@trap(
    "value loop",
    "an iteration stops when it has converged",
    FEATURES,
    bounds=BATCH,
    probes=lambda: features(1.0, 1e-3, 6.0, 300.0),
)
class FixedPoint(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) * 0.15)

    def forward(self, x):
        state = torch.zeros_like(x)
        for _ in range(12):
            new = torch.tanh(state @ self.weight + x)
            change = (new - state).abs().max()
            state = new
            if change < 0.02:
                break
        return state


@trap(
    "value loop",
    "values are halved until they fit",
    FEATURES,
    bounds=BATCH,
    probes=lambda: features(1.0, 30.0, 1000.0, 0.1),
)
class HalveUntilSmall(nn.Module):
    def forward(self, x):
        steps = 0
        while x.abs().max() > 8:
            x = x / 2
            steps += 1
        return x, torch.full((x.shape[0],), steps)


@trap(
    "value branch",
    "floor division of negatives in one arm, which scripting translates by truncation",
    "offset: int64[n] in -50..50",
    bounds={"n": (1, 20)},
    probes=lambda: [
        {"offset": torch.arange(7)},
        {"offset": torch.tensor([-7, -6, -5, -4, -3, -2, -1, 0, 1])},
        {"offset": torch.tensor([3, -1])},
    ],
)
class OffsetToCell(nn.Module):
    def forward(self, offset):
        if (offset < 0).any():
            return (offset - 1) // 4
        return offset // 4
