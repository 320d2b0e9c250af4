"""Wrong files at a combination of rare things: two sizes, two inputs, a native pair, missing values."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import wrong
from torch import nn

IMAGE = "x: float32[1, 2, height, width]"
SIDES = {"height": (4, 40), "width": (4, 40)}
X6 = "x: float32[batch, 6]"
BATCH = {"batch": (1, 4)}


def images(*sizes):
    return lambda: [{"x": torch.randn(1, 2, h, w)} for h, w in ((8, 9), *sizes)]


class NativePair(nn.Module):
    """A position map is used unchanged at its native size of 24 x 36."""

    def __init__(self):
        super().__init__()
        self.native = (24, 36)
        self.map = nn.Parameter(torch.randn(1, 2, 24, 36))

    def forward(self, x):
        size = tuple(x.shape[-2:])
        if size == self.native:
            return x + self.map
        return x + 0.5 * F.interpolate(self.map, size=size, mode="bilinear", align_corners=False)


wrong(
    NativePair,
    "native size",
    IMAGE,
    bounds=SIDES,
    probes=images((24, 36), (36, 24), (24, 24)),
    forwards={
        "never native": lambda self, x: (
            x + 0.5 * F.interpolate(self.map, size=tuple(x.shape[-2:]), mode="bilinear", align_corners=False)
        )
    },
)


class SquareOfSizes(nn.Module):
    """Sizes of 7 and 9 together are special."""

    def forward(self, x):
        return x.mean((0, 1)).cumsum(-1)


def at_seven_and_nine(self, x):
    h, w = torch.tensor(x.shape[2]), torch.tensor(x.shape[3])
    special = (h == 7) & (w == 9)
    return torch.where(special, 0.0, x.mean((0, 1)).cumsum(-1))


wrong(
    SquareOfSizes,
    "wrong at some sizes",
    IMAGE,
    bounds=SIDES,
    probes=images((7, 9), (9, 7)),
    forwards={"wrong at 7 x 9": at_seven_and_nine},
)


class MissingValues(nn.Module):
    """Missing values are found by comparing with themselves."""

    def forward(self, x):
        valid = x == x
        filled = torch.where(valid, x, torch.zeros_like(x))
        return filled.sum(-1) / valid.sum(-1).clamp(min=1)


def holes(*rows):
    return lambda: [{"x": torch.randn(2, 6)}, *({"x": torch.tensor([row])} for row in rows)]


wrong(
    MissingValues,
    "NaN and infinities",
    X6,
    bounds=BATCH,
    probes=holes([math.nan, 1.0, 2.0, 3.0, 4.0, 5.0], [math.nan] * 6),
    forwards={
        "the plain mean": lambda self, x: x.mean(-1),
        "all count": lambda self, x: torch.where(x == x, x, torch.zeros_like(x)).mean(-1),
    },
)


class MedianOfValid(nn.Module):
    """A sum over valid values, which are found behind a layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        h = x * self.scale
        return torch.nan_to_num(h, nan=0.25, posinf=9.0, neginf=-9.0)


wrong(
    MedianOfValid,
    "NaN and infinities",
    X6,
    bounds=BATCH,
    probes=holes([math.nan, 1.0, 2.0, 3.0, 4.0, 5.0], [math.inf, -math.inf, 1.0, 2.0, 3.0, 4.0]),
    forwards={
        "NaN stays": lambda self, x: (x * self.scale).clamp(-9, 9),
        "NaN is 0": lambda self, x: torch.nan_to_num(x * self.scale, nan=0.0, posinf=9.0, neginf=-9.0),
        "infinity is large": lambda self, x: torch.nan_to_num(x * self.scale, nan=0.25, neginf=-9.0),
    },
)


class ManyNumbers(nn.Module):
    """A polynomial with more coefficients than literals are tried, and one threshold."""

    def forward(self, x):
        t = 1 / (1 + 0.3275911 * x.abs())
        poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
        y = (1 - poly * torch.exp(-x * x)) * x.sign() * 0.918273 + 0.112358
        return torch.where(x > 2.718, y + 0.57721, y * 1.25331)


def polynomial(threshold, above):
    def forward(self, x):
        t = 1 / (1 + 0.3275911 * x.abs())
        poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
        y = (1 - poly * torch.exp(-x * x)) * x.sign() * 0.918273 + 0.112358
        return torch.where(x >= threshold if above else x > threshold, y + 0.57721, y * 1.25331)

    return forward


wrong(
    ManyNumbers,
    "a literal exactly",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.tensor([[2.718, 2.7185, 2.719, 0.0, 1.0, -2.718]])}],
    forwards={">= for >": polynomial(2.718, True), "2.72": polynomial(2.72, False)},
)


class Limits(nn.Module):
    """Limits far out, from attributes: whole numbers."""

    def __init__(self):
        super().__init__()
        self.top, self.bottom = 250, -1300

    def forward(self, x):
        return torch.where(x > self.top, torch.full_like(x, 7.0), x.clamp(min=self.bottom))


wrong(
    Limits,
    "limits",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.tensor([[249.0, 250.0, 251.0, -1299.0, -1300.0, -1400.0]])}],
    forwards={
        ">= for >": lambda self, x: torch.where(x >= 250, torch.full_like(x, 7.0), x.clamp(min=-1300)),
        "260": lambda self, x: torch.where(x > 260, torch.full_like(x, 7.0), x.clamp(min=-1300)),
        "-1290": lambda self, x: torch.where(x > 250, torch.full_like(x, 7.0), x.clamp(min=-1290)),
    },
    elementwise=True,
)


class TwoInputs(nn.Module):
    """Uses the product if both are negative, and adds one if both are zero."""

    def forward(self, a, b):
        both = (a < 0) & (b < 0)
        return torch.where(both, a * b, a + b) + ((a == 0) & (b == 0)).float()


def pairs(*rows):
    return lambda: [
        {"a": torch.randn(2, 6), "b": torch.randn(2, 6)},
        *({"a": torch.tensor([first]), "b": torch.tensor([second])} for first, second in rows),
    ]


wrong(
    TwoInputs,
    "equal inputs",
    "a: float32[batch, 6]",
    "b: float32[batch, 6]",
    bounds=BATCH,
    probes=pairs(([0.0, 1.0, 0.0, -1.0, 0.0, 2.0], [0.0, 0.0, 1.0, -1.0, 0.0, 2.0])),
    forwards={
        "both zero is nothing": lambda self, a, b: torch.where((a < 0) & (b < 0), a * b, a + b),
        "one zero is enough": lambda self, a, b: torch.where((a < 0) & (b < 0), a * b, a + b) + ((a * b) == 0).float(),
    },
)


class SignedZero(nn.Module):
    """The angle of a vector on the axis."""

    def forward(self, x):
        return torch.atan2(x[:, 0], x[:, 1])


def angle(self, x):
    y, z = x[:, 0], x[:, 1]
    base = torch.atan(y / z)
    return torch.where(z < 0, torch.where(y > 0, base + math.pi, base - math.pi), base)


wrong(
    SignedZero,
    "a literal exactly",
    "x: float32[batch, 2]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 2)}, {"x": torch.tensor([[0.0, -1.0], [1.0, -2.0]])}],
    forwards={"zero is negative": angle},
)


class EmptySelection(nn.Module):
    """The mean of the boxes above a score; without any it is 0."""

    def forward(self, boxes, scores):
        keep = (scores > 0.5).float()
        return (boxes * keep[:, None]).sum(0) / keep.sum().clamp(min=1)


wrong(
    EmptySelection,
    "masks",
    "boxes: float32[n, 4] in 0..1",
    "scores: float32[n] in 0..1",
    bounds={"n": (1, 30)},
    probes=lambda: [
        {"boxes": torch.rand(9, 4), "scores": torch.rand(9)},
        {"boxes": torch.rand(9, 4), "scores": torch.rand(9) * 0.5},
        {"boxes": torch.rand(4, 4), "scores": torch.tensor([0.5, 0.5, 0.9, 0.1])},
        {"boxes": torch.rand(4, 4), "scores": torch.tensor([0.5, 0.4, 0.3, 0.1])},
    ],
    forwards={
        "none is NaN": lambda self, boxes, scores: (
            (boxes * (scores > 0.5).float()[:, None]).sum(0) / (scores > 0.5).float().sum()
        ),
        ">= for >": lambda self, boxes, scores: (
            (boxes * (scores >= 0.5).float()[:, None]).sum(0) / (scores >= 0.5).float().sum().clamp(min=1)
        ),
        "none is the mean": lambda self, boxes, scores: torch.where(
            (scores > 0.5).any(),
            (boxes * (scores > 0.5).float()[:, None]).sum(0) / (scores > 0.5).float().sum().clamp(min=1),
            boxes.mean(0),
        ),
    },
)


class StepsOfTime(nn.Module):
    """Whole seconds of 32-bit milliseconds, also negative ones."""

    def forward(self, ms):
        return torch.div(ms, 1000, rounding_mode="floor"), torch.remainder(ms, 1000)


wrong(
    StepsOfTime,
    "integers",
    "ms: int32[batch] in -2000000000..2000000000",
    bounds={"batch": (1, 6)},
    probes=lambda: [
        {"ms": torch.tensor([5, 1500, 999999], dtype=torch.int32)},
        {"ms": torch.tensor([-1, -1000, -1001, 1999999999], dtype=torch.int32)},
        {"ms": torch.tensor([16777217, 16777219, -33554433], dtype=torch.int32)},
    ],
    forwards={
        "by floats": lambda self, ms: (
            torch.floor(ms.float() / 1000).to(torch.int32),
            (ms.float() - torch.floor(ms.float() / 1000) * 1000).to(torch.int32),
        ),
        "truncated": lambda self, ms: (torch.div(ms, 1000, rounding_mode="trunc"), torch.fmod(ms, 1000)),
    },
)


class Debounce(nn.Module):
    """Three hits in a row are needed."""

    def forward(self, x):
        hit = (x > 0.9).float()
        return (hit[:, 2:] * hit[:, 1:-1] * hit[:, :-2]).amax(-1)


wrong(
    Debounce,
    "a literal exactly",
    "x: float32[batch, 9] in 0..1",
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.rand(2, 9) * 0.8},
        {"x": torch.tensor([[0.0, 0.95, 0.95, 0.1, 0.95, 0.95, 0.0, 0.0, 0.0]])},
        {"x": torch.tensor([[0.0, 0.95, 0.95, 0.95, 0.0, 0.0, 0.0, 0.0, 0.0]])},
    ],
    forwards={
        "two are enough": lambda self, x: ((x > 0.9).float()[:, 1:] * (x > 0.9).float()[:, :-1]).amax(-1),
        "never": lambda self, x: torch.zeros(x.shape[0]),
        "four are needed": lambda self, x: (
            (x > 0.9).float()[:, 3:]
            * (x > 0.9).float()[:, 2:-1]
            * (x > 0.9).float()[:, 1:-2]
            * (x > 0.9).float()[:, :-3]
        ).amax(-1),
    },
)
