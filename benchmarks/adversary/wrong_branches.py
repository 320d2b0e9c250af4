"""Wrong files of models that branch on values: one side only, another threshold, a constant from the dummy."""

from __future__ import annotations

import torch
from case import wrong
from torch import nn

SIGNAL = {"batch": (1, 4), "time": (2, 60)}


class VoiceGate(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 3, padding=1)

    def forward(self, x):
        energy = x.pow(2).mean()
        if 0 < energy < 1e-3:
            return torch.zeros_like(x)
        return torch.tanh(self.conv(x[:, None])).mean(1) + 0.3


def gate_by(low, high, quiet=torch.zeros_like):
    def forward(self, x):
        energy = x.pow(2).mean()
        loud = torch.tanh(self.conv(x[:, None])).mean(1) + 0.3
        return torch.where((low < energy) & (energy < high), quiet(x), loud)

    return forward


wrong(
    VoiceGate,
    "one side of a branch",
    "x: float32[batch, time]",
    bounds=SIGNAL,
    probes=lambda: [
        {"x": torch.randn(2, 20)},
        {"x": torch.randn(2, 20) * 0.01},
        {"x": torch.randn(1, 50) * 0.02},
        {"x": torch.zeros(2, 5)},
        {"x": torch.randn(2, 30) * 0.06},
    ],
    forwards={
        "the loud side only": lambda self, x: torch.tanh(self.conv(x[:, None])).mean(1) + 0.3,
        "threshold 1e-2 for 1e-3": gate_by(0, 1e-2),
        "threshold 1e-4 for 1e-3": gate_by(0, 1.5e-4),
        "quiet input is passed on": gate_by(0, 1e-3, lambda x: x + 0.01),
        "zeros are gated too": gate_by(-1, 1e-3),
    },
)


class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.exit, self.rest = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        h = torch.relu(self.first(x))
        early = self.exit(h).softmax(-1)
        if early.max() > 0.95:
            return early
        return self.rest(h).softmax(-1)


def exit_at(confidence):
    def forward(self, x):
        h = torch.relu(self.first(x))
        early = self.exit(h).softmax(-1)
        return torch.where(early.max() > confidence, early, self.rest(h).softmax(-1))

    return forward


wrong(
    EarlyExit,
    "one side of a branch",
    "x: float32[batch, 8]",
    bounds={"batch": (1, 4)},
    probes=lambda: [{"x": torch.randn(2, 8) * s} for s in (1, 4, 6, 8, 10, 12, 16, 40, 100)],
    forwards={
        "never exits": exit_at(2.0),
        "always exits": exit_at(-1.0),
        "exits at 0.8 for 0.95": exit_at(0.8),
        "exits by the mean": lambda self, x: torch.where(
            self.exit(torch.relu(self.first(x))).softmax(-1).mean() > 0.95,
            self.exit(torch.relu(self.first(x))).softmax(-1),
            self.rest(torch.relu(self.first(x))).softmax(-1),
        ),
    },
)


class ChosenLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x, n):
        return torch.tanh(self.layers[int(n)](x))


wrong(
    ChosenLayer,
    "constant from a dummy",
    "x: float32[batch, 6]",
    "n: int64[] < 3",
    bounds={"batch": (1, 4)},
    probes=lambda: [{"x": torch.randn(2, 6), "n": torch.tensor(i)} for i in (1, 0, 2)],
    forwards={
        "layer 1 always": lambda self, x, n: torch.tanh(self.layers[1](x)) + n * 0.0,
        "layers 0 and 1 only": lambda self, x, n: torch.tanh(torch.where(n == 0, self.layers[0](x), self.layers[1](x))),
    },
)


class Scaled(nn.Module):
    def forward(self, x, n):
        return x * float(n)


wrong(
    Scaled,
    "constant from a dummy",
    example=lambda: {"x": torch.randn(2, 5), "n": torch.tensor(1.0)},
    dims={"x": "batch 5"},
    bounds={"batch": (1, 4)},
    route="trace",
    probes=lambda: [{"x": torch.randn(2, 5), "n": torch.tensor(v)} for v in (1.0, 2.0, -3.0, 0.0)],
    forwards={
        "factor 1 always": lambda self, x, n: x + 0.0 * n,
        "absolute factor": lambda self, x, n: x * n.abs(),
        "factor of at least 1": lambda self, x, n: x * n.clamp(min=1.0),
    },
)


class MaskedMean(nn.Module):
    def forward(self, x, mask):
        if mask.all():
            return x.mean(1)
        weight = mask.to(x.dtype)[..., None]
        return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


wrong(
    MaskedMean,
    "constant from a dummy",
    example=lambda: (torch.randn(2, 6, 3), torch.ones(2, 6)),
    dims={"x": "batch seq 3", "mask": "batch seq"},
    bounds={"batch": (1, 4), "seq": (1, 12)},
    probes=lambda: [
        {"x": torch.randn(2, 6, 3), "mask": torch.ones(2, 6)},
        {"x": torch.randn(2, 6, 3), "mask": torch.tensor([[1.0, 1, 1, 1, 0, 0], [1.0, 1, 0, 0, 0, 0]])},
        {"x": torch.randn(2, 6, 3), "mask": torch.tensor([[1.0, 0, 1, 0, 0, 1], [1.0, 1, 0, 1, 1, 0]])},
        {"x": torch.randn(2, 6, 3), "mask": torch.tensor([[0.0, 0, 0, 0, 0, 0], [1.0, 1, 0, 0, 0, 0]])},
    ],
    forwards={
        "mask ignored": lambda self, x, mask: x.mean(1) + mask.sum() * 0.0,
        "mask used as a length": lambda self, x, mask: (
            (x * (torch.arange(x.shape[1]) < mask.sum(1, keepdim=True))[..., None]).sum(1)
            / mask.sum(1, keepdim=True).clamp(min=1)
        ),
        "divided by the whole length": lambda self, x, mask: (x * mask[..., None]).mean(1),
        "empty rows are NaN": lambda self, x, mask: (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True),
    },
)
