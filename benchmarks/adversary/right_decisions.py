"""Right files with decisions after long sums: places, thresholds, rounding, whole numbers."""

from __future__ import annotations

import numpy as np
import torch
from case import right
from torch import nn

LONG = {"batch": (1, 4), "time": (1, 3000)}
SIGNAL = "x: float32[batch, time]"
FRAMES = "x: float32[batch, time, 6]"
WHY_NEAR = "a value within rounding of a decision may fall on either side"


def one_step(step, share=0.05):
    """Allow differences of one step, at few elements."""

    def check(call, ours, theirs):
        for own, their in zip(ours, theirs, strict=True):
            if own.shape != their.shape or own.dtype != their.dtype:
                return f"{their.dtype}{their.shape} for {own.dtype}{own.shape}"
            gap = np.abs(own.astype(np.float64) - their.astype(np.float64))
            if gap.max(initial=0) > step * 1.001 or (gap > step * 0.01).sum() > max(1, share * gap.size):
                return f"gaps up to {gap.max(initial=0)}, {(gap > 0).sum()} of {gap.size}"
        return ""

    return check


def near_best(score, largest=True):
    """Allow any place whose score, in float64, is within 1e-5 of the best place's."""

    def check(call, ours, theirs):
        scores = score({k: v.double() if v.is_floating_point() else v for k, v in call.items()})
        scores = (scores if largest else -scores).numpy()
        for own, their in zip(ours, theirs, strict=True):
            if own.shape != their.shape or own.dtype != their.dtype:
                return f"{their.dtype}{their.shape} for {own.dtype}{own.shape}"
            a, b = (np.take_along_axis(scores, i.reshape(len(scores), -1), -1) for i in (own, their))
            if (np.abs(a - b) > 1e-5 * np.abs(scores).max(initial=1e-30)).any():
                return "a place that is not among the best"
        return ""

    return check


def signals(*sizes):
    return lambda: [{"x": torch.randn(2, n)} for n in (50, *sizes)]


def frames(*sizes):
    return lambda: [{"x": torch.randn(2, n, 6)} for n in (50, *sizes)]


@right(
    "argmax after a sum", WHY_NEAR, FRAMES, bounds=LONG, probes=frames(2999), check=near_best(lambda c: c["x"].mean(1))
)
class MeanArgmax(nn.Module):
    def forward(self, x):
        return x.mean(1).argmax(-1)


@right(
    "argmax after a sum",
    WHY_NEAR,
    FRAMES,
    bounds=LONG,
    probes=frames(2999),
    check=near_best(lambda c: c["x"].pow(2).sum(1)),
)
class LoudestChannel(nn.Module):
    def forward(self, x):
        return x.pow(2).sum(1).argmax(-1)


@right(
    "argmax after a sum",
    WHY_NEAR,
    FRAMES,
    bounds=LONG,
    probes=frames(2999),
    check=near_best(lambda c: c["x"].sum(1), largest=False),
)
class LowestSum(nn.Module):
    def forward(self, x):
        return x.sum(1).argmin(-1)


WIDE = torch.randn(1024, 20, generator=torch.Generator().manual_seed(3)) / 32


@right(
    "argmax after a sum",
    WHY_NEAR,
    "x: float32[batch, 1024]",
    bounds={"batch": (1, 6)},
    probes=lambda: [{"x": torch.randn(3, 1024)}],
    check=near_best(lambda c: c["x"] @ WIDE.double()),
)
class WideTopk(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", WIDE.clone())

    def forward(self, x):
        return (x @ self.weight).topk(1, -1).indices[:, 0]


CODES = torch.randn(64, 96, generator=torch.Generator().manual_seed(4))


@right(
    "argmax after a sum",
    WHY_NEAR,
    "x: float32[batch, 96]",
    bounds={"batch": (1, 6)},
    probes=lambda: [{"x": torch.randn(3, 96)}],
    check=near_best(lambda c: (c["x"][:, None] - CODES.double()).pow(2).sum(-1), largest=False),
)
class NearestCode(nn.Module):
    """Vector quantization: the squared distance by the usual expansion."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", CODES.clone())

    def forward(self, x):
        return (x.pow(2).sum(1, keepdim=True) - 2 * x @ self.codes.T + self.codes.pow(2).sum(1)).argmin(-1)


@right("threshold after a sum", WHY_NEAR, SIGNAL, bounds=LONG, probes=signals(2999), check=one_step(1))
class SumAboveZero(nn.Module):
    def forward(self, x):
        return (x.sum(-1) > 0).float()


@right("threshold after a sum", WHY_NEAR, SIGNAL, bounds=LONG, probes=signals(2999), check=one_step(1))
class AboveMean(nn.Module):
    def forward(self, x):
        return (x > x.mean(-1, keepdim=True)).to(torch.int64)


@right("threshold after a sum", WHY_NEAR, SIGNAL, bounds=LONG, probes=signals(2999), check=one_step(2))
class SignOfCorrelation(nn.Module):
    def forward(self, x):
        return torch.sign((x * x.flip(-1)).sum(-1))


@right("threshold after a sum", WHY_NEAR, SIGNAL, bounds=LONG, probes=signals(2999), check=one_step(1))
class VoiceActive(nn.Module):
    def forward(self, x):
        return x.pow(2).mean(-1).sqrt() >= 0.5


@right("threshold after a sum", WHY_NEAR, SIGNAL, bounds=LONG, probes=signals(2999), check=one_step(2))
class CountAbove(nn.Module):
    def forward(self, x):
        return (x > x.mean(-1, keepdim=True)).sum(-1)


@right("rounding after a sum", WHY_NEAR, SIGNAL, bounds=LONG, probes=signals(2999), check=one_step(1))
class RoundOfSum(nn.Module):
    def forward(self, x):
        return torch.round(x.sum(-1))


@right("rounding after a sum", WHY_NEAR, SIGNAL, bounds=LONG, probes=signals(2999), check=one_step(1))
class SumToWhole(nn.Module):
    def forward(self, x):
        return (x.mean(-1) * 10).long()


@right("rounding after a sum", WHY_NEAR, SIGNAL, bounds=LONG, probes=signals(2999), check=one_step(1))
class LevelOfEnergy(nn.Module):
    def forward(self, x):
        return torch.floor(torch.log2(x.pow(2).sum(-1) + 1e-6)).to(torch.int32)


@right(
    "rounding after a sum",
    WHY_NEAR,
    "x: float32[batch, 512] in -1..1",
    bounds={"batch": (1, 4)},
    probes=lambda: [{"x": torch.rand(2, 512) * 2 - 1}],
    check=one_step(1),
)
class QuantizedProjection(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(512, 16)

    def forward(self, x):
        return torch.round(self.linear(x) / 0.05).clamp(-128, 127).to(torch.int8)


@right(
    "rounding after a sum",
    WHY_NEAR,
    SIGNAL,
    bounds={"batch": (1, 3), "time": (1, 800)},
    probes=signals(799),
    check=one_step(1),
)
class BucketOfNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([0.5, 1.0, 5.0, 10.0, 20.0, 100.0]))

    def forward(self, x):
        return (x.norm(dim=-1, keepdim=True) > self.edges).sum(-1)


@right(
    "argmax after a sum",
    WHY_NEAR,
    "x: float32[batch, seq, 8]",
    bounds={"batch": (1, 3), "seq": (2, 300)},
    probes=lambda: [{"x": torch.randn(2, 20, 8)}],
    check=near_best(lambda c: (c["x"] @ c["x"].mean(1)[..., None])[..., 0]),
)
class MostTypical(nn.Module):
    def forward(self, x):
        return (x @ x.mean(1)[..., None])[..., 0].argmax(-1)
