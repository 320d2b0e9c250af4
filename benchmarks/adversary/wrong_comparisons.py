"""Wrong files that differ at a literal, a tie, a half or a zero."""

from __future__ import annotations

import torch
from case import wrong
from torch import nn

LINE = "x: float32[batch, 6]"
BATCH = {"batch": (1, 4)}


class Function(nn.Module):
    """A function of tensors as a module, with a layer in front that keeps literals exact (a permutation)."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def exact(*values):
    """Probes: an ordinary one, then one that holds the exact values among ordinary ones, then rows of each value."""
    return lambda: [
        {"x": torch.randn(2, 6)},
        {"x": torch.tensor([*values, *[0.3, -0.7, 1.2, -1.4, 2.6, 0.1][len(values) :]][:6]).float()[None]},
        *({"x": torch.full((2, 6), float(value))} for value in values[:4]),
    ]


def pair(name, right, mistakes, *values, category="a literal exactly", line=LINE, probes=None, **settings):
    wrong(
        lambda: Function(right),
        category,
        line,
        bounds=BATCH,
        probes=probes or exact(*values),
        prefix=name,
        forwards={title: (lambda f: lambda self, x: f(x))(function) for title, function in mistakes.items()},
        **settings,
    )


pair("threshold half", lambda x: (x > 0.5).float() * x, {">= for >": lambda x: (x >= 0.5).float() * x}, 0.5)
pair("sparse code", lambda x: torch.where(x >= 1.25, x, -x), {"> for >=": lambda x: torch.where(x > 1.25, x, -x)}, 1.25)
pair("bin flags", lambda x: (x <= -2).to(torch.int64), {"< for <=": lambda x: (x < -2).to(torch.int64)}, -2.0)
pair(
    "equality",
    lambda x: torch.where(x == 3, 1.0, x),
    {
        "never equal": lambda x: torch.where(x == 3, 3.0, x),
        "close is equal": lambda x: torch.where((x - 3).abs() < 0.05, 1.0, x),
    },
    3.0,
    3.02,
)
pair(
    "not equal zero",
    lambda x: (x != 0).float(),
    {"positive": lambda x: (x > 0).float(), "ones": lambda x: torch.ones_like(x)},
    0.0,
)
pair("sign", lambda x: torch.sign(x), {"zero is positive": lambda x: torch.where(x >= 0, 1.0, -1.0)}, 0.0)
pair(
    "heaviside",
    lambda x: torch.heaviside(x, torch.tensor(0.5)),
    {"0 at zero": lambda x: (x > 0).float(), "1 at zero": lambda x: (x >= 0).float()},
    0.0,
)
pair("sentinel", lambda x: torch.where(x == -999.0, 0.0, torch.tanh(x)), {"sentinel is a number": torch.tanh}, -999.0)
pair(
    "full scale",
    lambda x: (x.abs() >= 32767).to(torch.int64),
    {"> for >=": lambda x: (x.abs() > 32767).to(torch.int64)},
    32767.0,
    -32767.0,
)
pair(
    "freezing",
    lambda x: torch.where(x < 273.15, x - 273.15, x * 0.1),
    {"273 for 273.15": lambda x: torch.where(x < 273.0, x - 273.15, x * 0.1)},
    273.1,
    273.15,
)

HALVES = (0.5, 1.5, 2.5, -0.5, -1.5, 3.5)
pair(
    "round",
    torch.round,
    {
        "half away from zero": lambda x: torch.sign(x) * torch.floor(x.abs() + 0.5),
        "half up": lambda x: torch.floor(x + 0.5),
        "ceil of halves": lambda x: torch.ceil(x - 0.5),
    },
    *HALVES,
    category="rounding and ties",
)
pair(
    "quantize",
    lambda x: torch.round(x * 4) / 4,
    {"half up": lambda x: torch.floor(x * 4 + 0.5) / 4},
    0.125,
    0.375,
    -0.125,
    category="rounding and ties",
)
pair(
    "to whole",
    lambda x: x.long(),
    {"floor for trunc": lambda x: torch.floor(x).long(), "round for trunc": lambda x: torch.round(x).long()},
    -0.5,
    -1.5,
    0.7,
    category="rounding and ties",
)
pair(
    "floor",
    torch.floor,
    {"trunc for floor": torch.trunc, "ceil minus one": lambda x: torch.ceil(x) - 1},
    -0.5,
    2.0,
    -3.0,
    category="rounding and ties",
)
pair(
    "fraction",
    lambda x: x - torch.floor(x),
    {"by trunc": lambda x: x - torch.trunc(x)},
    -0.25,
    category="rounding and ties",
)
pair(
    "remainder",
    lambda x: torch.remainder(x, 2.0),
    {"fmod": lambda x: torch.fmod(x, 2.0)},
    -0.5,
    -3.0,
    category="rounding and ties",
)

TIES = lambda: [  # noqa: E731
    {"x": torch.randn(2, 6)},
    {"x": torch.tensor([[1.0, 3, 3, 2, 3, 0], [0.0, 0, 0, 0, 0, 0]])},
    {"x": torch.ones(3, 6)},
]
pair(
    "argmax",
    lambda x: x.argmax(-1),
    {"the last of equals": lambda x: 5 - x.flip(-1).argmax(-1)},
    probes=TIES,
    category="rounding and ties",
)
pair(
    "argmin",
    lambda x: x.argmin(-1),
    {"the last of equals": lambda x: 5 - x.flip(-1).argmin(-1)},
    probes=TIES,
    category="rounding and ties",
)
pair(
    "picked by rounded score",
    lambda x: x.gather(-1, x.round().argmax(-1, keepdim=True)),
    {"the last of equals": lambda x: x.gather(-1, 5 - x.round().flip(-1).argmax(-1, keepdim=True))},
    probes=lambda: [
        {"x": torch.tensor([[0.2, 3.2, 1.9, 0.1, -1.3, -2.2], [4.2, 3.2, 1.9, 0.1, -1.3, -2.2]])},
        {"x": torch.tensor([[1.0, 2.7, 3.1, 2.2, 3.4, 0]])},
    ],
    category="rounding and ties",
)
pair(
    "rank",
    lambda x: (x[..., None] > x[..., None, :]).sum(-1),
    {">= for >": lambda x: (x[..., None] >= x[..., None, :]).sum(-1) - 1},
    probes=TIES,
    category="rounding and ties",
)
pair(
    "first above mean",
    lambda x: (x >= x.mean(-1, keepdim=True)).int().argmax(-1),
    {"> for >=": lambda x: (x > x.mean(-1, keepdim=True)).int().argmax(-1)},
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.tensor([[0.0, 2, 1, 1, 0, 2], [-2.0, 0, 0, 2, 0, 0]])}],
    category="rounding and ties",
)
