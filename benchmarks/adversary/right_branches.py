"""Right files of models that branch, where the branch goes through: where, cond, scripted If, loops, sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import right
from torch import nn

LINE = "x: float32[batch, 6]"
BATCH = {"batch": (1, 4)}
BOTH = "both sides are in the file"


def scales():
    return [{"x": torch.randn(2, 6) * s} for s in (1.0, 1e-3, 30.0, 0.0)]


def quiet(x):
    return torch.zeros_like(x)


def loud(x):
    return torch.tanh(x) + 0.3


@right("torch.cond", BOTH, LINE, bounds=BATCH, probes=scales, routes=("dynamo",))
class CondGate(nn.Module):
    def forward(self, x):
        return torch.cond(x.pow(2).mean() < 1e-3, quiet, loud, (x,))


@right("torch.cond", BOTH, LINE, bounds=BATCH, probes=scales, routes=("dynamo",))
class CondOfTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        return torch.cond(x.max() > 20, lambda v: self.a(v), lambda v: self.b(v), (x,))


@right("torch.where", BOTH, LINE, bounds=BATCH, probes=scales)
class WhereGate(nn.Module):
    def forward(self, x):
        return torch.where(x.pow(2).mean() < 1e-3, torch.zeros_like(x), torch.tanh(x) + 0.3)


@right("torch.where", BOTH, LINE, bounds=BATCH, probes=scales)
class WhereRows(nn.Module):
    def forward(self, x):
        loud = x.abs().amax(-1, keepdim=True) > 5
        return torch.where(loud, x / x.abs().amax(-1, keepdim=True).clamp(min=1e-6), x)


@right("torch.where", BOTH, LINE, bounds=BATCH, probes=scales)
class SafeDivision(nn.Module):
    def forward(self, x):
        norm = x.norm(dim=-1, keepdim=True)
        return torch.where(norm > 1e-6, x / norm.clamp(min=1e-6), torch.zeros_like(x))


@right(
    "torch.where",
    BOTH,
    "x: int64[batch, 6] in -300..300",
    bounds=BATCH,
    probes=lambda: [{"x": torch.tensor([[255, -100, 0, 7, -1, 254]] * 2)}],
)
class WhereLabels(nn.Module):
    def forward(self, x):
        return torch.where((x == 255) | (x == -100), 0, x)


@right(
    "torch.where",
    BOTH,
    LINE,
    bounds=BATCH,
    probes=lambda: [*scales(), {"x": torch.tensor([[0.5, float("nan"), 1, 2, float("inf"), -1]])}],
)
class NanRepaired(nn.Module):
    def forward(self, x):
        return torch.where(torch.isnan(x), torch.zeros_like(x), x).clamp(-10, 10)


@right("scripted If", BOTH, LINE, bounds=BATCH, probes=scales, routes=("script",))
class ScriptGate(nn.Module):
    def forward(self, x):
        if bool(x.pow(2).mean() < 1e-3):
            return torch.zeros_like(x)
        else:
            return torch.tanh(x) + 0.3


@right("scripted If", BOTH, LINE, bounds=BATCH, probes=scales, routes=("script",))
class ScriptScale(nn.Module):
    def forward(self, x):
        peak = x.abs().max()
        if bool(peak > 10.0):
            x = x / peak
        return x * 2


@right(
    "scripted If",
    BOTH,
    "x: float32[batch, time]",
    bounds={"batch": (1, 3), "time": (1, 40)},
    routes=("script",),
    probes=lambda: [{"x": torch.randn(2, n)} for n in (10, 1, 33)],
)
class ScriptSize(nn.Module):
    def forward(self, x):
        if x.size(1) > 16:
            return x[:, :16].mean(1)
        else:
            return x.sum(1)


@right(
    "scripted If",
    "a loop over time is in the file",
    "x: float32[batch, time]",
    bounds={"batch": (1, 3), "time": (1, 30)},
    routes=("script",),
    probes=lambda: [{"x": torch.randn(2, n)} for n in (10, 1, 29)],
)
class ScriptLoop(nn.Module):
    def forward(self, x):
        state = torch.zeros_like(x[:, 0])
        for i in range(x.size(1)):
            state = 0.5 * state + x[:, i]
        return state


@right(
    "sizes that go through",
    "the size is computed at run time",
    "x: float32[batch, time, 4]",
    bounds={"batch": (1, 3), "time": (1, 64)},
    probes=lambda: [{"x": torch.randn(2, n, 4)} for n in (10, 1, 64)],
)
class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(64, 4))

    def forward(self, x):
        return x + self.table[: x.shape[1]]


@right(
    "sizes that go through",
    "the size is computed at run time",
    "x: float32[batch, time, 4]",
    bounds={"batch": (1, 3), "time": (1, 64)},
    probes=lambda: [{"x": torch.randn(2, n, 4)} for n in (10, 1, 64)],
)
class CausalMean(nn.Module):
    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)
        return x.cumsum(1) / count[:, None]


@right(
    "sizes that go through",
    "the branch is about a fixed size",
    "x: float32[batch, 3, size, size]",
    bounds={"batch": (1, 3), "size": (4, 20)},
    probes=lambda: [{"x": torch.randn(2, 3, n, n)} for n in (8, 5, 20)],
)
class FixedChannels(nn.Module):
    def forward(self, x):
        if x.shape[1] == 3:
            x = x.mean(1, keepdim=True)
        return F.avg_pool2d(x, 2)


@right("settings that go through", "the flag is a constant of the model", LINE, bounds=BATCH, probes=scales)
class FlagInModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.residual, self.temperature = True, 2.0
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        out = self.linear(x)
        if self.residual:
            out = out + x
        return out / self.temperature if self.temperature != 1.0 else out
