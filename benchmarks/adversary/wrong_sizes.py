"""Wrong files that are right at most sizes: one size, multiples, equal dims, beyond a length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from torch import nn

LINE = "x: float32[batch, time, 4]"
LONG = {"batch": (1, 6), "time": (1, 400)}


def count(x, axis):
    """Return the size of an axis as a tensor that every exporter computes at run time."""
    moved = x.transpose(0, axis)
    return torch.ones_like(moved.reshape(moved.shape[0], -1)[:, 0]).sum()


class Smooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return y - y.mean(1, keepdim=True)


def wrong_when(condition):
    """Make a forward that is half as large at the sizes at which the condition is true."""

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        y = y - y.mean(1, keepdim=True)
        return torch.where(condition(count(x, 1), count(x, 0)), 0.5 * y, y)

    return forward


def at_sizes(*pairs):
    return lambda: [{"x": torch.randn(3, 10, 4)}, *({"x": torch.randn(b, t, 4)} for b, t in pairs)]


CONDITIONS = {
    "at time 33": (lambda t, b: t == 33, [(2, 33)]),
    "at time 2": (lambda t, b: t == 2, [(2, 1), (2, 2)]),
    "at time 400, the limit": (lambda t, b: t == 400, [(2, 400)]),
    "at time 399": (lambda t, b: t == 399, [(1, 399)]),
    "at multiples of 16": (lambda t, b: torch.fmod(t, 16) == 0, [(2, 16), (2, 320)]),
    "at multiples of 64": (lambda t, b: torch.fmod(t, 64) == 0, [(2, 64), (1, 128)]),
    "at multiples of 97": (lambda t, b: torch.fmod(t, 97) == 0, [(2, 97), (1, 194)]),
    "at odd lengths": (lambda t, b: torch.fmod(t, 2) == 1, [(2, 11)]),
    "beyond 256": (lambda t, b: t > 256, [(1, 256), (1, 257), (2, 300)]),
    "beyond 390": (lambda t, b: t > 390, [(1, 395)]),
    "between 100 and 120": (lambda t, b: (t > 100) & (t < 120), [(1, 110)]),
    "at batch 1": (lambda t, b: b == 1, [(1, 10)]),
    "at batch 5": (lambda t, b: b == 5, [(5, 10)]),
    "at batch above 4": (lambda t, b: b > 4, [(6, 10)]),
    "where batch equals time": (lambda t, b: t == b, [(3, 3), (5, 5)]),
    "where time is twice the batch": (lambda t, b: t == 2 * b, [(4, 8)]),
    "where batch times time is 60": (lambda t, b: t * b == 60, [(6, 10), (3, 20)]),
    "at powers of two": (lambda t, b: torch.log2(t) == torch.floor(torch.log2(t)), [(2, 64), (2, 32)]),
    "at squares": (lambda t, b: torch.sqrt(t) == torch.floor(torch.sqrt(t)), [(2, 49), (2, 144)]),
    "at one corner": (lambda t, b: (t >= 398) & (b == 6), [(6, 400)]),
}
for title, (condition, points) in CONDITIONS.items():
    wrong(
        Smooth,
        "wrong at some sizes",
        LINE,
        bounds=LONG,
        probes=at_sizes(*points),
        route="trace",
        forwards={title: wrong_when(condition)},
    )


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(128, 4))

    def forward(self, x):
        return x + self.table[: x.shape[1]]


wrong(
    Positions,
    "position tables",
    LINE,
    bounds={"batch": (1, 4), "time": (1, 128)},
    probes=at_sizes((2, 64), (1, 65), (2, 128), (2, 127)),
    forwards={
        "clamped at 63": lambda self, x: x + self.table[torch.arange(x.shape[1]).clamp(max=63)],
        "repeated from 64 on": lambda self, x: x + self.table[torch.arange(x.shape[1]) % 64],
        "reversed": lambda self, x: x + self.table[: x.shape[1]].flip(0),
        "from the end": lambda self, x: x + self.table[128 - x.shape[1] :],
        "clamped at 126": lambda self, x: x + self.table[torch.arange(x.shape[1]).clamp(max=126)],
    },
    alters={
        "one late row is off": lambda m: m.table[101].add_(0.01),
        "two rows exchanged": lambda m: m.table.copy_(m.table[[*range(77), 78, 77, *range(79, 128)]]),
    },
)


class NativeGrid(nn.Module):
    """Position table of a ViT, resized unless the grid is the native one."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 4, 4, 4)
        self.grid = nn.Parameter(torch.randn(1, 4, 6, 6))

    def forward(self, x):
        h = self.patch(x)
        grid = self.grid
        if h.shape[-2:] != grid.shape[-2:]:
            grid = F.interpolate(grid, size=h.shape[-2:], mode="bilinear", align_corners=False)
        return (h + grid).flatten(2).transpose(1, 2)


def resize(size_of, **settings):
    def forward(self, x):
        h = self.patch(x)
        grid = F.interpolate(self.grid, size=size_of(h), **settings)
        return (h + grid).flatten(2).transpose(1, 2)

    return forward


wrong(
    NativeGrid,
    "native size",
    "x: float32[batch, 1, height, width]",
    route="trace",
    bounds={"batch": (1, 3), "height": (8, 48), "width": (8, 48)},
    probes=lambda: [{"x": torch.randn(2, 1, h, w)} for h, w in ((20, 28), (24, 24), (24, 32), (48, 48), (8, 24))],
    forwards={
        "align_corners": resize(lambda h: h.shape[-2:], mode="bilinear", align_corners=True),
        "bicubic": resize(lambda h: h.shape[-2:], mode="bicubic", align_corners=False),
        "nearest": resize(lambda h: h.shape[-2:], mode="nearest"),
        "grid transposed": lambda self, x: (
            (self.patch(x) + F.interpolate(self.grid.transpose(2, 3), size=self.patch(x).shape[-2:], mode="bilinear"))
            .flatten(2)
            .transpose(1, 2)
        ),
        "flattened by columns": lambda self, x: (
            (self.patch(x) + F.interpolate(self.grid, size=self.patch(x).shape[-2:], mode="bilinear"))
            .transpose(2, 3)
            .flatten(2)
            .transpose(1, 2)
        ),
    },
)
