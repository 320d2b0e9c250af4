"""Right files in half precision, with whole numbers as outputs, and of models that ask for the dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import right
from right_forms import BATCH, SAME, SEQ
from torch import nn


def halves():
    return [{"x": torch.randn(2, 8).half()}]


@right("half precision", SAME, "x: float16[batch, 8]", bounds=BATCH, probes=halves, draw=False)
class HalfLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4).half()

    def forward(self, x):
        return self.linear(x).relu()


@right("half precision", SAME, "x: float16[batch, 8]", bounds=BATCH, probes=halves, draw=False)
class HalfThroughFloat(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(x.float()).softmax(-1).half()


@right("half precision", SAME, "x: float16[batch, 8]", bounds=BATCH, probes=halves, draw=False)
class HalfNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8).half() + 0.5)

    def forward(self, x):
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def features():
    return [{"x": torch.randn(2, 8) * s} for s in (1.0, 10.0)]


X8 = "x: float32[batch, 8]"


@right("dtype questions", SAME, X8, bounds=BATCH, probes=features)
class CallsFloat(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        h = x.float()
        return self.linear(h).float()


@right("dtype questions", SAME, X8, bounds=BATCH, probes=features)
class AsksFinfo(nn.Module):
    def forward(self, x):
        mask = torch.ones(8, 8).tril() == 0
        scores = (x[:, :, None] * x[:, None]).masked_fill(mask, torch.finfo(x.dtype).min)
        return scores.softmax(-1)


@right("dtype questions", SAME, X8, bounds=BATCH, probes=features)
class AsksDtype(nn.Module):
    def forward(self, x):
        eps = 1e-6 if x.dtype == torch.float32 else 1e-3
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


@right("dtype questions", SAME, X8, bounds=BATCH, probes=features)
class CastsToFloat32(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        kind = x.dtype
        h = x.to(torch.float32)
        h = h - h.mean(-1, keepdim=True)
        return self.linear(h.to(kind))


@right("dtype questions", SAME, X8, bounds=BATCH, probes=features)
class SumsInDouble(nn.Module):
    def forward(self, x):
        return x.double().cumsum(-1).float()


@right("dtype questions", SAME, X8, bounds=BATCH, probes=features)
class FactoryFloat32(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        ramp = torch.arange(8, dtype=torch.float32) / 8
        return self.linear(x + ramp) @ torch.eye(8, dtype=torch.float32)


@right(
    "dtype questions",
    SAME,
    "ids: int64[batch, seq] < 50",
    bounds=SEQ,
    probes=lambda: [{"ids": torch.randint(0, 50, (2, 7))}],
)
class TimestepEmbedding(nn.Module):
    def forward(self, ids):
        freqs = torch.exp(-torch.arange(4, dtype=torch.float32))
        angle = ids[..., None].float() * freqs
        return torch.cat([angle.sin(), angle.cos()], -1)


@right(
    "integer outputs",
    SAME,
    "ids: int64[batch, seq] < 50",
    bounds=SEQ,
    probes=lambda: [{"ids": torch.randint(0, 50, (2, 7))}],
)
class Shifted(nn.Module):
    def forward(self, ids):
        return torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], 1), (ids != 0).sum(-1)


@right(
    "integer outputs",
    SAME,
    "x: int64[batch, 6] in -1000..1000",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randint(-1000, 1000, (2, 6))}],
)
class FloorDivides(nn.Module):
    def forward(self, x):
        return torch.div(x.abs(), 7, rounding_mode="floor"), x.abs() % 7


@right(
    "integer outputs",
    SAME,
    "x: float32[batch, 6] in -100..100",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6) * 30}],
)
class ToWhole(nn.Module):
    def forward(self, x):
        return x.long(), x.int(), x > 0


@right("integer outputs", SAME, "x: float32[batch, seq]", bounds=SEQ, probes=lambda: [{"x": torch.randn(2, 9)}])
class PlaceOfMax(nn.Module):
    def forward(self, x):
        return x.argmax(-1), x.max(-1).values


@right(
    "integer outputs",
    SAME,
    "ids: int64[batch, seq] < 12",
    bounds=SEQ,
    probes=lambda: [{"ids": torch.randint(0, 12, (2, 7))}],
)
class OneHot(nn.Module):
    def forward(self, ids):
        return F.one_hot(ids, 12).sum(1)
