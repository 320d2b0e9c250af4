"""Right files with small results beside large inputs, and other forms that look imprecise and are not wrong."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from case import right
from torch import nn

LINE = "x: float32[batch, 8]"
BATCH = {"batch": (1, 4)}
WHY = "absolute errors are far below one rounding step of the inputs"


def within_steps(scale):
    """Allow an absolute error of a hundred rounding steps of inputs of one scale."""

    def check(call, ours, theirs):
        for own, their in zip(ours, theirs, strict=True):
            if own.shape != their.shape or own.dtype != their.dtype:
                return f"{their.dtype}{their.shape} for {own.dtype}{own.shape}"
            gap = np.abs(own.astype(np.float64) - their.astype(np.float64)).max(initial=0)
            if not gap <= 100 * np.finfo(np.float32).eps * scale:
                return f"a gap of {gap}"
        return ""

    return check


def plain():
    return [{"x": torch.randn(2, 8) * s} for s in (1.0, 5.0, 0.01, 30.0)]


def within(low, high):
    return lambda: [{"x": torch.rand(2, 8) * (high - low) + low} for _ in range(3)]


@right("small results", WHY, LINE, bounds=BATCH, probes=plain)
class Gated(nn.Module):
    def forward(self, x):
        return F.glu(x, -1)


@right("small results", WHY, LINE, bounds=BATCH, probes=plain)
class SigmoidTail(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x * 2 - 5)


@right("small results", WHY, LINE, bounds=BATCH, probes=plain)
class SwishNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return F.silu(self.linear(x)) * torch.sigmoid(self.linear(x))


@right("small results", WHY, "x: float32[batch, 8] in -2..2", bounds=BATCH, probes=within(-2, 2), routes=("dynamo",))
class Tail(nn.Module):
    def forward(self, x):
        return 0.5 * torch.erfc(x * 0.7071)


@right("small results", WHY, "x: float32[batch, 8] in 0.1..50", bounds=BATCH, probes=within(0.1, 50))
class Compressed(nn.Module):
    def forward(self, x):
        return torch.log1p(x)


@right("small results", WHY, LINE, bounds=BATCH, probes=plain)
class SoftplusNet(nn.Module):
    def forward(self, x):
        return F.softplus(x) + 0.1


@right("small results", WHY, LINE, bounds=BATCH, probes=plain)
class Gelu(nn.Module):
    def forward(self, x):
        return F.gelu(x)


@right("small results", WHY, LINE, bounds=BATCH, probes=plain)
class Mishy(nn.Module):
    def forward(self, x):
        return F.mish(x)


@right("small results", WHY, LINE, bounds=BATCH, probes=plain)
class LogProbabilities(nn.Module):
    def forward(self, x):
        return F.log_softmax(x, -1).exp()


@right(
    "small results",
    "the difference of near equals has the rounding of the inputs",
    LINE,
    bounds=BATCH,
    probes=plain,
    check=within_steps(100),
)
class Centered(nn.Module):
    def forward(self, x):
        return (x + 100) - (x + 100).mean(-1, keepdim=True)


@right(
    "small results",
    "the mean is ten times the spread",
    "x: float32[batch, 8] in -3..3",
    bounds=BATCH,
    probes=within(-3, 3),
)
class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x + 10)


@right("small results", WHY, LINE, bounds=BATCH, probes=plain, check=within_steps(1))
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8)

    def forward(self, x):
        return (self.query(x) * x).softmax(-1) * torch.sigmoid(-x.abs())


@right(
    "long sums",
    "the order of sums differs",
    "x: float32[batch, time]",
    bounds={"batch": (1, 3), "time": (1, 4000)},
    probes=lambda: [{"x": torch.randn(2, n)} for n in (50, 3999)],
)
class LongSum(nn.Module):
    def forward(self, x):
        return x.abs().sum(-1), x.pow(2).mean(-1)


@right(
    "long sums",
    "a running sum of many elements",
    "x: float32[batch, time] in 0..1",
    bounds={"batch": (1, 3), "time": (1, 2000)},
    probes=lambda: [{"x": torch.rand(2, n)} for n in (50, 1999)],
)
class RunningSum(nn.Module):
    def forward(self, x):
        return x.cumsum(-1)


@right(
    "long sums",
    "a large matrix product",
    "x: float32[batch, 2048]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 2048)}],
)
class WideProduct(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2048, 8)

    def forward(self, x):
        return self.linear(x)
