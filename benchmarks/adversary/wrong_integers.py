"""Wrong files of models on whole numbers: negatives, overflow, literals, modulo, sides of a search."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from torch import nn

BATCH = {"batch": (1, 4)}
WIDE = "x: int64[batch, 6] in -1000000000000..1000000000000"


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def numbers(*given, dtype=torch.int64):
    filled = [*given, *[3, 5, 8, 1, 2, 7]][:6]
    return lambda: [
        {"x": torch.randint(0, 10, (2, 6)).to(dtype)},
        {"x": torch.tensor([filled], dtype=dtype)},
    ]


def pair(name, right, mistakes, probes, line="x: int64[batch, 6]", category="integers", **settings):
    wrong(
        lambda: Function(right),
        category,
        line,
        bounds=BATCH,
        probes=probes,
        prefix=name,
        forwards={title: (lambda f: lambda self, x: f(x))(function) for title, function in mistakes.items()},
        **settings,
    )


def narrow(x):
    return x.to(torch.int32).to(torch.int64)


SIGNED = "x: int64[batch, 6] in -100..100"
pair(
    "floor division",
    lambda x: x // 4,
    {"trunc": lambda x: torch.div(x, 4, rounding_mode="trunc")},
    numbers(-1, -4, -5),
    SIGNED,
)
pair(
    "floor division, not declared",
    lambda x: x // 4,
    {"trunc": lambda x: torch.div(x, 4, rounding_mode="trunc")},
    numbers(-1, -4, -5),
)
pair(
    "modulo",
    lambda x: x % 7,
    {"fmod": lambda x: torch.fmod(x, 7), "of the absolute value": lambda x: x.abs() % 7},
    numbers(-1, -8, -14),
    SIGNED,
)
pair(
    "hash",
    lambda x: (x * 2654435761) % 1009,
    {"in 32 bits": lambda x: narrow(narrow(x) * narrow(torch.tensor(2654435761))) % 1009},
    numbers(9, 123456, 7654321),
    "x: int64[batch, 6] < 10000000",
)
pair(
    "time stamps",
    lambda x: x - x[:, :1],
    {
        "in 32 bits": lambda x: narrow(x) - narrow(x[:, :1]) + 0 * x,
        "as float32": lambda x: (x.float() - x[:, :1].float()).long(),
    },
    numbers(1700000000000, 1700000000123, -5),
    WIDE,
)
pair(
    "sum of large",
    lambda x: x.sum(-1),
    {"as float32": lambda x: x.float().sum(-1).long(), "in 32 bits": lambda x: narrow(x.sum(-1))},
    numbers(2**40 + 1, 2**33, 17),
    WIDE,
)
pair(
    "above int32",
    lambda x: (x > 2**31).long(),
    {"never": lambda x: (x * 0).long(), "at 2**30": lambda x: (x > 2**30).long()},
    numbers(2**31 + 5, 2**30 + 5),
    WIDE,
)
pair(
    "above 63, not declared", lambda x: torch.where(x > 63, x - 64, x), {"never": lambda x: x + 0}, numbers(64, 100, 63)
)
pair("negative, not declared", lambda x: x.abs() * 2, {"without abs": lambda x: x * 2}, numbers(-3, -1))
pair(
    "ignore label 255",
    lambda x: torch.where(x == 255, 0, x),
    {"255 is a label": lambda x: x + 0, "254 too": lambda x: torch.where(x >= 254, 0, x)},
    numbers(255, 254),
    "x: int64[batch, 6] in 0..255",
)
pair(
    "ignore label 255, not declared",
    lambda x: torch.where(x == 255, 0, x),
    {"255 is a label": lambda x: x + 0},
    numbers(255),
)
pair(
    "ignore index",
    lambda x: (x != -100).sum(-1),
    {"-1 for -100": lambda x: (x != -1).sum(-1), "negatives ignored": lambda x: (x >= 0).sum(-1)},
    numbers(-100, -1, -100),
    SIGNED,
)
pair(
    "pad id",
    lambda x: (x != 0).sum(-1),
    {"all count": lambda x: (x > -1).sum(-1), "pad is 1": lambda x: (x != 1).sum(-1)},
    numbers(0, 0, 0),
    "x: int64[batch, 6] < 500",
)
pair(
    "end token",
    lambda x: (x == 499).int().argmax(-1),
    {
        "the last of them": lambda x: 5 - (x == 499).flip(-1).int().argmax(-1),
        "the largest id below 499": lambda x: (x * (x < 499)).argmax(-1),
    },
    numbers(4, 499, 7, 499),
    "x: int64[batch, 6] < 500",
)
pair(
    "buckets",
    lambda x: torch.bucketize(x, torch.tensor([0, 10, 100, 1000])),
    {
        "right side": lambda x: torch.bucketize(x, torch.tensor([0, 10, 100, 1000]), right=True),
        "the last boundary missing": lambda x: torch.bucketize(x, torch.tensor([0, 10, 100])),
    },
    numbers(10, 100, 1000, 1001, 0),
    "x: int64[batch, 6] in -10..2000",
)
pair(
    "relative position",
    lambda x: x.clamp(-8, 7) + 8,
    {"-7 for -8": lambda x: x.clamp(-7, 7) + 8, "not clamped above": lambda x: x.clamp(min=-8) + 8},
    numbers(-8, -20, 30),
    SIGNED,
)
pair(
    "bytes",
    lambda x: x.float() / 255,
    {
        "by 256": lambda x: x.float() / 256,
        "signed bytes": lambda x: torch.where(x > 127, x.float() - 256, x.float()) / 255,
    },
    numbers(200, 255, dtype=torch.uint8),
    "x: uint8[batch, 6]",
)
pair(
    "byte sums wrap",
    lambda x: x + x,
    {"saturated": lambda x: (x.int() * 2).clamp(max=255).to(torch.uint8)},
    numbers(200, 255, 128, dtype=torch.uint8),
    "x: uint8[batch, 6]",
)
pair(
    "small ints wrap",
    lambda x: x * 3,
    {"saturated": lambda x: (x.int() * 3).clamp(-128, 127).to(torch.int8)},
    numbers(100, -100, 50, dtype=torch.int8),
    "x: int8[batch, 6]",
)
pair(
    "parity",
    lambda x: x & 1,
    {"by fmod": lambda x: torch.fmod(x, 2), "three bits": lambda x: x & 3},
    numbers(-1, -3, 7),
    SIGNED,
)
pair(
    "one hot",
    lambda x: F.one_hot(x, 12),
    {
        "the last class missing": lambda x: F.one_hot(x, 12) * (torch.arange(12) < 11),
        "class 0 is empty": lambda x: F.one_hot(x, 12) * (torch.arange(12) > 0),
    },
    numbers(11, 0, 10),
    "x: int64[batch, 6] < 12",
)
pair(
    "running count",
    lambda x: x.cumsum(-1),
    {"exclusive": lambda x: x.cumsum(-1) - x, "restarts above 100": lambda x: torch.fmod(x.cumsum(-1), 101)},
    numbers(90, 60, 3),
    "x: int64[batch, 6] < 100",
)
pair(
    "unit step of ids",
    lambda x: (x[:, 1:] != x[:, :-1]).cumsum(-1),
    {"increases only": lambda x: (x[:, 1:] > x[:, :-1]).cumsum(-1)},
    numbers(5, 5, 3, 3, 9),
    "x: int64[batch, 6] < 100",
)
