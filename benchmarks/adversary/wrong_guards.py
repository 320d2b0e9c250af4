"""Wrong files of models with guards for rare values: close vectors, NaN, small angles, full masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from torch import nn


class Slerp(nn.Module):
    def forward(self, a, b, t):
        dot = (a * b).sum(-1, keepdim=True)
        b = torch.where(dot < 0, -b, b)
        dot = dot.abs()
        if (dot > 0.9995).any():
            out = a + t * (b - a)
            return out / out.norm(dim=-1, keepdim=True)
        angle = torch.acos(dot)
        return (torch.sin((1 - t) * angle) * a + torch.sin(t * angle) * b) / torch.sin(angle)


def slerp_angle(a, b, t, dot):
    angle = torch.acos(dot)
    return (torch.sin((1 - t) * angle) * a + torch.sin(t * angle) * b) / torch.sin(angle)


def unit(*shape):
    return F.normalize(torch.randn(*shape), dim=-1)


def slerp_probes():
    near = unit(2, 4)
    far = unit(3, 4)
    return [
        {"a": (a := unit(2, 4)), "b": F.normalize(a + 0.3 * torch.randn(2, 4), dim=-1), "t": torch.rand(2, 1)},
        {"a": near, "b": near.clone(), "t": torch.rand(2, 1)},
        {"a": near, "b": F.normalize(-near + 0.3, dim=-1), "t": torch.rand(2, 1)},
        {"a": far, "b": F.normalize(far + 0.02 * torch.randn(3, 4), dim=-1), "t": torch.rand(3, 1)},
    ]


wrong(
    Slerp,
    "one side of a branch",
    "a: float32[batch, 4] in -1..1",
    "b: float32[batch, 4] in -1..1",
    "t: float32[batch, 1] in 0..1",
    bounds={"batch": (1, 4)},
    probes=slerp_probes,
    prefix="Slerp",
    forwards={
        "no short way for close vectors": lambda self, a, b, t: slerp_angle(
            a, torch.where((a * b).sum(-1, keepdim=True) < 0, -b, b), t, (a * b).sum(-1, keepdim=True).abs()
        ),
        "the short way always": lambda self, a, b, t: F.normalize(
            a + t * (torch.where((a * b).sum(-1, keepdim=True) < 0, -b, b) - a), dim=-1
        ),
        "no sign change": lambda self, a, b, t: slerp_angle(
            a, b, t, (a * b).sum(-1, keepdim=True).clamp(-0.9995, 0.9995)
        ),
    },
)


class CleanNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        if torch.isnan(x).any() or torch.isinf(x).any():
            x = torch.nan_to_num(x, nan=0.0, posinf=10.0, neginf=-10.0)
        return self.linear(x)


def clean(nan, posinf, neginf):
    return lambda self, x: self.linear(
        torch.where(
            torch.isnan(x),
            nan,
            torch.where(x == float("inf"), posinf, torch.where(x == float("-inf"), neginf, x)),
        )
    )


wrong(
    CleanNumbers,
    "NaN and infinities",
    "x: float32[batch, 4]",
    bounds={"batch": (1, 4)},
    probes=lambda: [
        {"x": torch.randn(2, 4)},
        {"x": torch.tensor([[1.0, float("nan"), 2.0, 3.0]])},
        {"x": torch.tensor([[1.0, float("inf"), 2.0, 3.0]])},
        {"x": torch.tensor([[1.0, float("-inf"), 2.0, 3.0]])},
    ],
    forwards={
        "NaN goes through": lambda self, x: self.linear(x),
        "NaN becomes 1": clean(1.0, 10.0, -10.0),
        "infinity becomes 0": clean(0.0, 0.0, -10.0),
        "negative infinity becomes positive": clean(0.0, 10.0, 10.0),
    },
)


class FixedPoint(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6) * 0.2)

    def forward(self, x):
        state = torch.zeros_like(x)
        for _ in range(8):
            new = torch.tanh(state @ self.weight + x)
            done = (new - state).abs().max() < 0.05
            state = new
            if done:
                break
        return state


def iterate(steps):
    def forward(self, x):
        state = torch.zeros_like(x)
        for _ in range(steps):
            state = torch.tanh(state @ self.weight + x)
        return state

    return forward


wrong(
    FixedPoint,
    "loops that stop by value",
    "x: float32[batch, 6]",
    bounds={"batch": (1, 4)},
    probes=lambda: [{"x": torch.randn(2, 6) * s} for s in (1.0, 0.01, 0.1, 3.0, 50.0)],
    forwards={"never stops early": iterate(8), "three steps always": iterate(3), "one step always": iterate(1)},
)


class SmallAngle(nn.Module):
    """Rotation about z by the axis-angle formula with the usual guard."""

    def forward(self, w):
        angle = w.norm(dim=-1, keepdim=True)
        if (angle < 1e-6).any():
            return 1 - w**2 / 2
        return torch.sin(angle) / angle * w + torch.cos(angle)


wrong(
    SmallAngle,
    "one side of a branch",
    "w: float32[batch, 3]",
    bounds={"batch": (1, 4)},
    probes=lambda: [
        {"w": torch.randn(2, 3)},
        {"w": torch.zeros(2, 3)},
        {"w": torch.randn(2, 3) * 1e-8},
        {"w": torch.cat([torch.zeros(1, 3), torch.randn(2, 3)])},
    ],
    forwards={
        "no guard": lambda self, w: (
            torch.sin(w.norm(dim=-1, keepdim=True)) / w.norm(dim=-1, keepdim=True) * w
            + torch.cos(w.norm(dim=-1, keepdim=True))
        ),
        "guard by row": lambda self, w: torch.where(
            w.norm(dim=-1, keepdim=True) < 1e-6,
            1 - w**2 / 2,
            torch.sin(w.norm(dim=-1, keepdim=True)) / w.norm(dim=-1, keepdim=True) * w
            + torch.cos(w.norm(dim=-1, keepdim=True)),
        ),
    },
)


class Warmup(nn.Module):
    """Temperature as HF generation code applies it."""

    def forward(self, logits, temperature):
        if temperature != 1.0:
            logits = logits / temperature
        return logits.softmax(-1)


wrong(
    Warmup,
    "constant from a dummy",
    example=lambda: (torch.randn(2, 9), torch.tensor(1.0)),
    dims={"logits": "batch 9"},
    bounds={"batch": (1, 4)},
    route="trace",
    probes=lambda: [{"logits": torch.randn(2, 9), "temperature": torch.tensor(t)} for t in (1.0, 0.5, 3.0)],
    forwards={
        "temperature ignored": lambda self, logits, temperature: (logits + 0.0 * temperature).softmax(-1),
        "only high temperatures": lambda self, logits, temperature: (logits / temperature.clamp(min=1.0)).softmax(-1),
    },
)


class SegmentType(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.types = nn.Embedding(20, 6), nn.Embedding(2, 6)

    def forward(self, ids, types):
        out = self.words(ids)
        if types.any():
            out = out + self.types(types)
        return out


wrong(
    SegmentType,
    "constant from a dummy",
    example=lambda: (torch.randint(0, 20, (2, 5)), torch.zeros(2, 5, dtype=torch.long)),
    dims={"ids": "batch seq", "types": "batch seq"},
    bounds={"batch": (1, 4), "seq": (1, 10)},
    probes=lambda: [
        {"ids": torch.randint(0, 20, (2, 5)), "types": torch.zeros(2, 5, dtype=torch.long)},
        {"ids": torch.randint(0, 20, (2, 5)), "types": torch.ones(2, 5, dtype=torch.long)},
        {"ids": torch.randint(0, 20, (1, 4)), "types": torch.tensor([[0, 0, 1, 1]])},
    ],
    forwards={
        "types ignored": lambda self, ids, types: self.words(ids) + 0.0 * types[..., None],
        "types added always": lambda self, ids, types: self.words(ids) + self.types(types),
        "the type of the first token": lambda self, ids, types: (
            self.words(ids) + self.types(types[:, :1]) * types.any().float()
        ),
    },
)
