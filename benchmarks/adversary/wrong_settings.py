"""Wrong files with a wrong attribute of one node: rounding of sizes, modes, axes, sides, defaults."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from torch import nn

MAP = "x: float32[1, 2, height, width]"
MAPS = {"height": (2, 24), "width": (2, 24)}
BATCH = {"batch": (1, 4)}


def maps(*sizes):
    return lambda: [{"x": torch.randn(1, 2, h, w)} for h, w in ((8, 8), *sizes)]


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def settings(name, category, right, mistakes, line, probes, bounds, **more):
    wrong(
        lambda: Function(right),
        category,
        line,
        bounds=bounds,
        probes=probes,
        prefix=name,
        forwards={title: (lambda f: lambda self, x: f(x))(function) for title, function in mistakes.items()},
        **more,
    )


def resize(**options):
    return lambda x: F.interpolate(x, **options)


settings(
    "nearest",
    "settings of a node",
    resize(size=(5, 7), mode="nearest"),
    {
        "nearest exact": resize(size=(5, 7), mode="nearest-exact"),
        "bilinear": resize(size=(5, 7), mode="bilinear"),
    },
    MAP,
    maps((9, 3), (24, 23)),
    MAPS,
)
settings(
    "bilinear",
    "settings of a node",
    resize(size=(9, 9), mode="bilinear", align_corners=False),
    {
        "aligned corners": resize(size=(9, 9), mode="bilinear", align_corners=True),
        "with antialias": resize(size=(9, 9), mode="bilinear", align_corners=False, antialias=True),
    },
    MAP,
    maps((9, 3), (24, 23)),
    MAPS,
)
settings(
    "bicubic twice",
    "settings of a node",
    resize(scale_factor=2.0, mode="bicubic", align_corners=False),
    {"aligned corners": resize(scale_factor=2.0, mode="bicubic", align_corners=True)},
    MAP,
    maps((9, 3)),
    MAPS,
)
settings(
    "pool",
    "settings of a node",
    lambda x: F.avg_pool2d(x, 3, 2, 1),
    {
        "padding does not count": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    },
    MAP,
    maps((9, 3), (7, 24)),
    MAPS,
)
settings(
    "reflection",
    "settings of a node",
    lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    {
        "edges": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
        "zeros": lambda x: F.pad(x, (1, 1, 1, 1)),
    },
    MAP,
    maps((9, 3)),
    MAPS,
)
settings(
    "leaky",
    "settings of a node",
    lambda x: F.leaky_relu(x, 0.01),
    {"slope 0.0101": lambda x: F.leaky_relu(x, 0.0101), "slope 0.012": lambda x: F.leaky_relu(x, 0.012)},
    "x: float32[batch, 6]",
    lambda: [{"x": torch.randn(2, 6)}, {"x": -torch.rand(2, 6)}],
    BATCH,
    elementwise=True,
)
settings(
    "gelu",
    "settings of a node",
    F.gelu,
    {
        "by tanh": lambda x: F.gelu(x, approximate="tanh"),
        "by a sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    },
    "x: float32[batch, 6]",
    lambda: [{"x": torch.randn(2, 6)}, {"x": torch.full((2, 6), -2.5)}],
    BATCH,
    elementwise=True,
)
settings(
    "norm of groups",
    "settings of a node",
    lambda x: F.group_norm(x, 2, eps=1e-5),
    {
        "epsilon 1e-6": lambda x: F.group_norm(x, 2, eps=1e-6),
        "three groups": lambda x: F.group_norm(x, 3, eps=1e-5),
        "epsilon 2e-5": lambda x: F.group_norm(x, 2, eps=2e-5),
    },
    "x: float32[batch, 6]",
    lambda: [{"x": torch.randn(2, 6)}, {"x": torch.randn(2, 6) * 1e-3}],
    BATCH,
)
settings(
    "running sum",
    "settings of a node",
    lambda x: x.cumsum(-1),
    {
        "exclusive": lambda x: x.cumsum(-1) - x,
        "reverse": lambda x: x.flip(-1).cumsum(-1).flip(-1),
        "over rows": lambda x: x.cumsum(0),
    },
    "x: float32[batch, 6]",
    lambda: [{"x": torch.randn(2, 6)}],
    BATCH,
)
settings(
    "triangle",
    "settings of a node",
    lambda x: x.tril(1),
    {"below the diagonal": lambda x: x.tril(), "two above": lambda x: x.tril(2)},
    "x: float32[rows, cols]",
    lambda: [{"x": torch.randn(3, 5)}, {"x": torch.randn(1, 2)}],
    {"rows": (1, 8), "cols": (1, 8)},
)
settings(
    "first of equals",
    "settings of a node",
    lambda x: x.round().argmax(-1),
    {"last of equals": lambda x: x.shape[-1] - 1 - x.round().flip(-1).argmax(-1)},
    "x: float32[batch, 6]",
    lambda: [{"x": torch.tensor([[0.0, 3.0, 1, 3, 2, 3], [0.0, 0.0, 5, 1, 5, 3]])}, {"x": torch.ones(2, 6)}],
    BATCH,
)


class Depth(nn.Module):
    """Pixel shuffle of six channels."""

    def forward(self, x):
        return F.pixel_shuffle(x, 2)


def other_order(self, x):
    b, c, h, w = x.shape
    return x.reshape(b, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(b, c // 4, h * 2, w * 2)


wrong(
    Depth,
    "settings of a node",
    "x: float32[batch, 8, 3, 3]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 8, 3, 3)}],
    forwards={"depth, column, row": other_order},
)


class SumsByPlace(nn.Module):
    """Values are added at places, which may repeat."""

    def forward(self, x, place):
        return torch.zeros(6).index_add(0, place, x)


def first_two(self, x, place):
    once = torch.zeros(6).index_copy(0, place, x)
    return torch.where(
        torch.zeros(6).index_add(0, place, torch.ones_like(x)) > 2, once, torch.zeros(6).index_add(0, place, x)
    )


wrong(
    SumsByPlace,
    "settings of a node",
    "x: float32[n]",
    "place: int64[n] in 0..5",
    bounds={"n": (1, 5)},
    probes=lambda: [
        {"x": torch.randn(3), "place": torch.tensor([0, 2, 4])},
        {"x": torch.randn(5), "place": torch.tensor([3, 3, 3, 3, 0])},
    ],
    forwards={"three of a kind do not add up": first_two},
)
