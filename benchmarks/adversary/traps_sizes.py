"""Traps with a rare size: exact sizes, multiples, equal dims, native tables, buckets, chunks."""

from __future__ import annotations

import bisect
import math

import torch
import torch.nn.functional as F
from case import trap
from torch import nn

FRAMES = "x: float32[batch, time, 4]"


def frames(*points):
    return lambda: [{"x": torch.randn(b, t, 4)} for b, t in points]


@trap(
    "one size",
    "one window of audio takes the short path",
    FRAMES,
    bounds={"batch": (1, 3), "time": (1, 1200)},
    probes=frames((2, 40), (2, 1001), (1, 1000), (1, 1)),
)
class OneSecond(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if x.shape[1] == 1001:
            x = x[:, :1000]
        return self.linear(x).mean(1)


@trap(
    "multiples",
    "whole blocks are folded, other lengths are not",
    FRAMES,
    bounds={"batch": (1, 3), "time": (1, 600)},
    probes=frames((2, 40), (2, 128), (1, 512), (1, 129)),
)
class WholeBlocks(nn.Module):
    def forward(self, x):
        b, t, c = x.shape
        if t % 128 == 0:
            return x.reshape(b, t // 128, 128, c).mean(1).sum(1)
        return x.sum(1) / math.ceil(t / 128) * 1.01


@trap(
    "equal dims",
    "square matrices are made symmetric",
    "x: float32[batch, rows, cols]",
    bounds={"batch": (1, 2), "rows": (1, 40), "cols": (1, 40)},
    probes=lambda: [{"x": torch.randn(2, r, c)} for r, c in ((4, 7), (7, 7), (29, 29), (1, 1), (40, 39))],
)
class Symmetric(nn.Module):
    def forward(self, x):
        if x.shape[1] == x.shape[2]:
            x = 0.5 * (x + x.transpose(1, 2))
        return x.cumsum(-1)


@trap(
    "native size",
    "the position table of a ViT is used as it is at its native grid",
    example=lambda: (torch.randn(1, 3, 32, 48),),
    dims={"image": "batch 3 height width"},
    bounds={"batch": (1, 2), "height": (16, 96), "width": (16, 96)},
    multiples={"height": 8, "width": 8},
    probes=lambda: [{"image": torch.randn(1, 3, h, w)} for h, w in ((32, 48), (64, 64), (16, 96), (48, 48), (64, 16))],
)
class TinyViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 8, 8)
        self.position = nn.Parameter(torch.randn(1, 64, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, image):
        h = self.patch(image)
        rows, cols = h.shape[-2:]
        tokens = h.flatten(2).transpose(1, 2)
        position = self.position
        if tokens.shape[1] != position.shape[1] or rows != cols:
            grid = position.reshape(1, 8, 8, 8).permute(0, 3, 1, 2)
            grid = F.interpolate(grid, size=(rows, cols), mode="bicubic", align_corners=False)
            position = grid.permute(0, 2, 3, 1).reshape(1, rows * cols, 8)
        return self.block(tokens + position)[:, 0]


@trap(
    "buckets",
    "lengths fall into buckets, each with its own gain",
    FRAMES,
    bounds={"batch": (1, 2), "time": (1, 400)},
    probes=frames((2, 10), (2, 16), (2, 17), (1, 64), (1, 65), (1, 300)),
)
class LengthBuckets(nn.Module):
    EDGES = (16, 64, 256)

    def __init__(self):
        super().__init__()
        self.gains = nn.Parameter(torch.tensor([1.0, 0.5, 2.0, -1.0]))

    def forward(self, x):
        return x.mean(1) * self.gains[bisect.bisect_left(self.EDGES, x.shape[1])]


@trap(
    "far sizes",
    "beyond the training length the temperature grows",
    example=lambda: {"x": torch.randn(2, 24, 4)},
    dims={"x": "batch time 4"},
    bounds={"batch": (1, 2), "time": (1, 700)},
    probes=frames((2, 24), (1, 512), (1, 513), (1, 700)),
)
class LongContext(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        n = x.size(1)
        scale = 1.0 if n <= 512 else 3 * math.log(n) / math.log(512)
        return (self.q(x) @ self.k(x).transpose(1, 2) * scale).softmax(-1) @ x


@trap(
    "padding",
    "padded to a multiple of 8 by reflection",
    "x: float32[batch, time]",
    bounds={"batch": (1, 3), "time": (8, 80)},
    probes=lambda: [{"x": torch.randn(2, t)} for t in (13, 8, 16, 17, 80, 79)],
)
class ReflectPad(nn.Module):
    def forward(self, x):
        extra = (8 - x.shape[1] % 8) % 8
        if extra > 0:
            x = F.pad(x[:, None], (0, extra), mode="reflect")[:, 0]
        return x.reshape(x.shape[0], -1, 8).amax(-1)


@trap(
    "chunks",
    "four chunks, and fewer where the length does not allow it",
    "x: float32[batch, time]",
    bounds={"batch": (1, 3), "time": (1, 40)},
    probes=lambda: [{"x": torch.randn(2, t)} for t in (12, 1, 2, 5, 6, 9, 13, 40)],
)
class FourChunks(nn.Module):
    def forward(self, x):
        parts = x.chunk(4, dim=1)
        return sum(p.mean(1) * (i + 1) for i, p in enumerate(parts)) / len(parts)


@trap(
    "chunks",
    "long recordings are run in segments of 50",
    "x: float32[batch, time]",
    bounds={"batch": (1, 2), "time": (1, 240)},
    probes=lambda: [{"x": torch.randn(2, t)} for t in (30, 50, 51, 100, 240)],
)
class Segments(nn.Module):
    def forward(self, x):
        outs = []
        for start in range(0, x.shape[1], 50):
            part = x[:, start : start + 50]
            outs.append(part - part.mean(1, keepdim=True))
        return torch.cat(outs, 1)
