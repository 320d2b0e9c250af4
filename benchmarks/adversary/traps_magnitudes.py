"""Traps of magnitudes: tiny norms, large values, halves, ties, NaN."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import trap
from torch import nn
from traps_integers import BATCH, X6


@trap(
    "tiny values",
    "a tiny vector is returned as it is",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6) * s} for s in (1.0, 1e-9, 1e-7, 100.0)],
)
class TinyVector(nn.Module):
    def forward(self, x):
        norm = x.norm()
        if norm < 1e-6:
            return x
        return x / norm


@trap(
    "tiny values",
    "an epsilon of 1e-8 keeps zeros from NaN",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.zeros(2, 6)}, {"x": torch.randn(2, 6) * 1e-9}],
)
class SmallEpsilon(nn.Module):
    def forward(self, x):
        return x / (x.abs().sum(-1, keepdim=True) + 1e-8)


@trap(
    "tiny values",
    "a flat row has a deviation of zero",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.full((2, 6), 3.0)}, {"x": torch.randn(2, 6) * 1e-10}],
)
class FlatRow(nn.Module):
    def forward(self, x):
        std = x.std(-1, keepdim=True)
        if (std < 1e-8).any():
            std = torch.ones_like(std)
        return (x - x.mean(-1, keepdim=True)) / std


@trap(
    "large values",
    "activations beyond 1e4 are clamped",
    example=lambda: (torch.randn(2, 6),),
    dims={"x": "batch 6"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6) * s} for s in (1.0, 1e5, 1e3)],
)
class ClampLarge(nn.Module):
    def forward(self, x):
        h = x * 2
        if h.abs().max() > 1e4:
            h = h.clamp(-1e4, 1e4)
        return h


@trap(
    "large values",
    "T5: infinities of half precision are clamped",
    "x: float16[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6).half()}, {"x": torch.full((2, 6), 60000.0).half()}],
)
class HalfOverflow(nn.Module):
    def forward(self, x):
        h = x * 4
        if h.dtype == torch.float16 and torch.isinf(h).any():
            limit = torch.finfo(h.dtype).max - 1000
            h = torch.clamp(h, min=-limit, max=limit)
        return h * 0.5


@trap(
    "log scale",
    "a log spectrum with a floor relative to the peak",
    "x: float32[batch, 6] in 0..1",
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.rand(2, 6)},
        {"x": torch.rand(2, 6) * 1e-11},
        {"x": torch.tensor([[1.0, 1e-9, 1e-12, 0, 0.5, 1e-4]])},
    ],
)
class LogSpectrum(nn.Module):
    def forward(self, x):
        log = torch.clamp(x, min=1e-10).log10()
        log = torch.maximum(log, log.max() - 8.0)
        return (log + 4.0) / 4.0


@trap(
    "exact values",
    "halves round to even",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6) * 3}, {"x": torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, -2.5]])}],
)
class RoundsHalves(nn.Module):
    def forward(self, x):
        return torch.round(x), torch.round(x * 10, decimals=0).long()


@trap(
    "exact values",
    "exactly one half is not above one half",
    "p: float32[batch, 6] in 0..1",
    bounds=BATCH,
    probes=lambda: [
        {"p": torch.rand(2, 6)},
        {"p": torch.full((2, 6), 0.5)},
        {"p": torch.tensor([[0.5, 0.4, 0.5, 0.6, 0, 1]])},
    ],
)
class AboveHalf(nn.Module):
    def forward(self, p):
        if (p == 0.5).any():
            p = p + 0.01
        return (p > 0.5).long()


@trap(
    "equal inputs",
    "equal images have no difference to scale",
    "a: float32[batch, 6]",
    "b: float32[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"a": torch.randn(2, 6), "b": torch.randn(2, 6)}, {"a": (t := torch.randn(2, 6)), "b": t.clone()}],
)
class EqualImages(nn.Module):
    def forward(self, a, b):
        if torch.equal(a, b):
            return torch.zeros_like(a)
        gap = (a - b).abs()
        return gap / gap.max()


@trap(
    "ties",
    "the first of equal maxima",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.zeros(2, 6)}, {"x": torch.tensor([[1.0, 3, 3, 2, 3, 0]])}],
)
class FirstMaximum(nn.Module):
    def forward(self, x):
        index = x.argmax(-1)
        if (x.amax(-1) == x.amin(-1)).all():
            index = torch.full_like(index, -1)
        return index


@trap(
    "NaN",
    "missing samples are NaN and filled with the mean",
    X6,
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.randn(2, 6)},
        {"x": torch.tensor([[1.0, float("nan"), 3, 4, 5, 6]])},
        {"x": torch.full((1, 6), float("nan"))},
    ],
)
class FillMissing(nn.Module):
    def forward(self, x):
        missing = torch.isnan(x)
        if missing.any():
            x = torch.where(missing, torch.zeros_like(x), x)
            mean = x.sum(-1, keepdim=True) / (~missing).sum(-1, keepdim=True).clamp(min=1)
            x = torch.where(missing, mean, x)
        return x * 2


@trap(
    "NaN",
    "infinities and NaN are cleaned up",
    X6,
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.randn(2, 6)},
        {"x": torch.tensor([[1.0, float("nan"), float("inf"), -float("inf"), 5, 6]])},
    ],
)
class CleansUp(nn.Module):
    def forward(self, x):
        return torch.nan_to_num(x, nan=0.5, posinf=100.0, neginf=-100.0).cumsum(-1)


@trap(
    "overflow",
    "softmax by hand overflows for large logits",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6) * s} for s in (1.0, 20.0, 200.0)],
)
class SoftmaxByHand(nn.Module):
    def forward(self, x):
        e = x.exp()
        if torch.isinf(e).any():
            return torch.softmax(x, -1)
        return e / (1 + e.sum(-1, keepdim=True))


def near(scale):
    a = F.normalize(torch.randn(2, 4), dim=-1)
    return {"a": a, "b": F.normalize(a + scale * torch.randn(2, 4), dim=-1), "t": torch.tensor(0.25)}


@trap(
    "exact values",
    "slerp of close quaternions is lerp",
    example=lambda: tuple(near(1.0).values()),
    dims={"a": "batch 4", "b": "batch 4"},
    bounds=BATCH,
    probes=lambda: [near(1.0), near(0.0), near(1e-3), near(0.2)],
)
class Slerp(nn.Module):
    def forward(self, a, b, t):
        dot = (a * b).sum(-1, keepdim=True)
        if (dot > 0.9995).all():
            return F.normalize(a + t * (b - a), dim=-1)
        angle = torch.acos(dot)
        return (torch.sin((1 - t) * angle) * a + torch.sin(t * angle) * b) / torch.sin(angle)


@trap(
    "large values",
    "angles beyond half a turn are wrapped",
    example=lambda: (torch.rand(2, 6),),
    dims={"angle": "batch 6"},
    bounds=BATCH,
    probes=lambda: [{"angle": torch.rand(2, 6) * s} for s in (1.0, 6.0, 40.0, -40.0)],
)
class WrapAngle(nn.Module):
    def forward(self, angle):
        while (angle > math.pi).any():
            angle = torch.where(angle > math.pi, angle - 2 * math.pi, angle)
        return angle.abs()


@trap(
    "large values",
    "log of a probability for logits far below zero",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6) * s} for s in (1.0, 30.0, 150.0)],
)
class LogProbability(nn.Module):
    def forward(self, x):
        return F.logsigmoid(x)
