"""Wrong files of ordinary networks whose weights differ: a row, a head, a scale that saturation hides."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from mutations import wrap_output
from torch import nn

BATCH = {"batch": (1, 4)}
TOKENS = {"batch": (1, 4), "seq": (1, 24)}
FINE = 1e-5
"""Tolerance for showing small planted errors; these networks have no long sums."""


class SaturatedNet(nn.Module):
    """Inputs are declared in a wide range, so tanh is nearly always at its ends."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        return torch.tanh(self.second(torch.tanh(self.first(x))) * 30)


def scale_all(factor):
    def alter(model):
        for parameter in model.parameters():
            parameter.mul_(factor)

    return alter


wrong(
    SaturatedNet,
    "weights behind saturation",
    "x: float32[batch, 5] in -1000..1000",
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.randn(2, 5) * 300},
        {"x": torch.randn(3, 5)},
        {"x": torch.randn(2, 5) * 0.1},
        {"x": torch.randn(4, 5) * 10},
    ],
    alters={
        "all weights times 1.5": scale_all(1.5),
        "all weights times 1.01": scale_all(1.01),
        "first bias dropped": lambda m: m.first.bias.zero_(),
        "second bias dropped": lambda m: m.second.bias.zero_(),
        "first layer times 2": lambda m: m.first.weight.mul_(2),
    },
    forwards={
        "signs only": lambda self, x: torch.sign(self.second(torch.sign(self.first(x)))),
        "gain 60 for 30": lambda self, x: torch.tanh(self.second(torch.tanh(self.first(x))) * 60),
    },
)


class Classifier(nn.Module):
    """Embeddings of 2,000 tokens, a mean, a head."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(2000, 8), nn.Linear(8, 4)

    def forward(self, ids):
        return self.head(torch.tanh(self.embed(ids)).mean(1))


def swap(parameter, a, b):
    def alter(model):
        rows = model.get_parameter(parameter)
        rows[[a, b]] = rows[[b, a]]

    return alter


def shift(parameter, place, amount):
    def alter(model):
        model.get_parameter(parameter)[place] += amount

    return alter


def ids_probes():
    special = [1234, 1235, 0, 1999, 7, 500]
    return [
        {"ids": torch.randint(10, 400, (2, 6))},
        *({"ids": torch.full((1, 2), one)} for one in special),
    ]


wrong(
    Classifier,
    "one row of an embedding",
    "ids: int64[batch, seq] < 2000",
    bounds=TOKENS,
    probes=ids_probes,
    tolerance=FINE,
    alters={
        "rows 1234 and 1235 exchanged": swap("embed.weight", 1234, 1235),
        "rows 0 and 1999 exchanged": swap("embed.weight", 0, 1999),
        "row 500 off by 1e-3": shift("embed.weight", 500, 1e-3),
        "the last row is zero": lambda m: m.embed.weight[1999].zero_(),
        "row 0 is zero": lambda m: m.embed.weight[0].zero_(),
        "one element of row 7": shift("embed.weight", (7, 3), 0.5),
        "rows above 1024 are the first": lambda m: m.embed.weight[1024:].copy_(m.embed.weight[: 2000 - 1024]),
    },
    forwards={
        "ids capped at 1023": lambda self, ids: self.head(torch.tanh(self.embed(ids.clamp(max=1023))).mean(1)),
        "id 0 is padding": lambda self, ids: self.head(torch.tanh(self.embed(ids) * (ids != 0)[..., None]).mean(1)),
        "ids modulo 1999": lambda self, ids: self.head(torch.tanh(self.embed(ids % 1999)).mean(1)),
    },
)


class Heads(nn.Module):
    """Self-attention with four heads, as written by hand."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.mix(x, 1e-5, 0.5)

    def mix(self, x, epsilon, scale, causal=False):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * scale
        if causal:
            scores = scores.masked_fill(torch.ones(n, n).tril() == 0, -1e9)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)
        return F.layer_norm(x + self.out(mixed), (d,), self.norm.weight, self.norm.bias, epsilon)


def head_times(factor, head):
    def alter(model):
        model.qkv.weight[32 + 4 * head : 36 + 4 * head] *= factor

    return alter


wrong(
    Heads,
    "one head, one bias, one epsilon",
    "x: float32[batch, seq, 16]",
    bounds=TOKENS,
    tolerance=FINE,
    probes=lambda: [
        {"x": torch.randn(2, 6, 16)},
        {"x": torch.randn(2, 6, 16) * 1e-3},
        {"x": torch.randn(1, 24, 16) * 5},
        {"x": torch.zeros(1, 3, 16)},
    ],
    alters={
        "one head times 1.001": head_times(1.001, 2),
        "one head times 3": head_times(3.0, 1),
        "query bias dropped": lambda m: m.qkv.bias[:16].zero_(),
        "one value bias off by 1e-3": shift("qkv.bias", 33, 1e-3),
        "output bias dropped": lambda m: m.out.bias.zero_(),
        "one output row off by 1e-3": shift("out.weight", 5, 1e-3),
        "norm weight of another channel": lambda m: m.norm.weight[3].add_(0.01),
        "heads 0 and 1 exchanged in v": swap("qkv.weight", 32, 36),
    },
    forwards={
        "epsilon 1e-12": lambda self, x: self.mix(x, 1e-12, 0.5),
        "epsilon 1e-6": lambda self, x: self.mix(x, 1e-6, 0.5),
        "epsilon 1e-3": lambda self, x: self.mix(x, 1e-3, 0.5),
        "scale of the whole width": lambda self, x: self.mix(x, 1e-5, 0.25),
        "causal": lambda self, x: self.mix(x, 1e-5, 0.5, causal=True),
    },
)


class Cancelling(nn.Module):
    """One large channel whose two halves nearly cancel beside small channels."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 5)
        self.head.weight.data[0] *= 1e4
        self.head.bias.data[0] *= 1e4

    def forward(self, x):
        y = self.head(x)
        far = self.head.weight[0] @ (x + 1e3).transpose(0, 1) - self.head.weight[0].sum() * 1e3
        return torch.cat([far[:, None] + self.head.bias[0], y[:, 1:]], 1)


wrong(
    Cancelling,
    "hidden by another channel",
    "x: float32[batch, 6]",
    bounds=BATCH,
    elementwise=True,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.randn(4, 6) * 0.1}],
    mutations={
        "channel 3 times 3": wrap_output(0, ("Mul", ["$", "factor"], {}), factor=[1, 1, 1, 3, 1]),
        "channel 1 off by 0.1": wrap_output(0, ("Add", ["$", "extra"], {}), extra=[0, 0.1, 0, 0, 0]),
        "the last channel is zero": wrap_output(0, ("Mul", ["$", "factor"], {}), factor=[1, 1, 1, 1, 0]),
    },
)
