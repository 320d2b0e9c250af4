"""Traps with a rare length: one, odd, beyond a limit, squares, powers of two."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import trap
from torch import nn
from traps_sizes import FRAMES, frames


@trap(
    "size one",
    "squeeze() drops the batch of one",
    example=lambda: (torch.randn(3, 1, 6),),
    dims={"x": "batch 1 6"},
    bounds={"batch": (1, 4)},
    probes=lambda: [{"x": torch.randn(b, 1, 6)} for b in (3, 1, 4)],
)
class Squeezes(nn.Module):
    def forward(self, x):
        return x.squeeze().relu()


@trap(
    "size one",
    "a single frame has no deviation",
    "x: float32[batch, time, 4]",
    bounds={"batch": (1, 3), "time": (1, 30)},
    probes=frames((2, 9), (2, 1), (1, 1), (2, 2)),
)
class SingleFrame(nn.Module):
    def forward(self, x):
        if x.shape[1] > 1:
            return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
        return x


@trap(
    "size one",
    "len() of the batch decides",
    "x: float32[batch, 5]",
    bounds={"batch": (1, 6)},
    probes=lambda: [{"x": torch.randn(b, 5)} for b in (3, 1, 2, 6)],
)
class LenOfBatch(nn.Module):
    def forward(self, x):
        if len(x) == 1:
            return x * 2
        return x - x.mean(0)


@trap(
    "odd sizes",
    "odd lengths lose their last frame before the halves are joined",
    FRAMES,
    bounds={"batch": (1, 3), "time": (2, 60)},
    probes=frames((2, 10), (2, 11), (1, 2), (1, 3)),
)
class Hourglass(nn.Module):
    def forward(self, x):
        if x.shape[1] % 2:
            x = x[:, :-1]
        half = x.shape[1] // 2
        return x[:, :half] + x[:, half:].flip(1)


@trap(
    "equal dims",
    "channels last are recognized by the last dim",
    "image: float32[batch, a, b, c]",
    bounds={"batch": (1, 2), "a": (1, 12), "b": (1, 12), "c": (1, 12)},
    probes=lambda: [{"image": torch.randn(2, *s)} for s in ((5, 8, 9), (3, 8, 9), (8, 9, 3), (8, 9, 1), (3, 3, 3))],
)
class ChannelsLast(nn.Module):
    def forward(self, image):
        if image.shape[-1] in (1, 3):
            image = image.permute(0, 3, 1, 2)
        return image.mean((2, 3)).sum(1)


@trap(
    "far sizes",
    "full attention up to a window, then a band",
    FRAMES,
    bounds={"batch": (1, 2), "time": (1, 120)},
    probes=frames((2, 10), (1, 32), (1, 33), (1, 120)),
)
class SlidingWindow(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2)
        n = x.shape[1]
        if n > 32:
            i = torch.arange(n)
            scores = scores.masked_fill((i[:, None] - i[None]).abs() > 16, float("-inf"))
        return scores.softmax(-1) @ v


@trap(
    "far sizes",
    "small maps are enlarged before pooling",
    "x: float32[batch, 2, height, width]",
    bounds={"batch": (1, 2), "height": (3, 30), "width": (3, 30)},
    probes=lambda: [{"x": torch.randn(1, 2, h, w)} for h, w in ((12, 14), (6, 14), (12, 6), (7, 7), (3, 3))],
)
class EnlargeSmall(nn.Module):
    def forward(self, x):
        if min(x.shape[-2:]) < 7:
            x = F.interpolate(x, size=(7, 7), mode="bilinear", align_corners=False)
        return F.max_pool2d(x, 3, 2).amax((2, 3))


@trap(
    "far sizes",
    "a table of 64 positions starts again when it is too short",
    FRAMES,
    bounds={"batch": (1, 2), "time": (1, 150)},
    probes=frames((2, 10), (1, 64), (1, 65), (1, 129)),
)
class TiledTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(64, 4))

    def forward(self, x):
        table = self.table
        if x.shape[1] > 64:
            table = table.repeat(math.ceil(x.shape[1] / 64), 1)
        return x + table[: x.shape[1]]


@trap(
    "one size",
    "a square number of tokens is a picture",
    FRAMES,
    bounds={"batch": (1, 2), "time": (2, 100)},
    probes=frames((2, 10), (2, 16), (1, 81), (1, 80)),
)
class SquareTokens(nn.Module):
    def forward(self, x):
        b, n, c = x.shape
        side = int(n**0.5)
        if side * side == n:
            return F.avg_pool2d(x.transpose(1, 2).reshape(b, c, side, side), 2, 1).flatten(2).mean(-1)
        return F.avg_pool1d(x.transpose(1, 2), 2, 1).mean(-1)


@trap(
    "one size",
    "powers of two take the butterfly",
    "x: float32[batch, time]",
    bounds={"batch": (1, 2), "time": (2, 70)},
    probes=lambda: [{"x": torch.randn(2, t)} for t in (10, 16, 64, 2, 63)],
)
class PowerOfTwo(nn.Module):
    def forward(self, x):
        n = x.shape[1]
        if n & (n - 1) == 0:
            a, b = x[:, ::2], x[:, 1::2]
            return torch.cat([a + b, a - b], 1)
        return x * 1.5


@trap(
    "equal dims",
    "equal lengths mean self-attention, which is causal",
    "q: float32[batch, a, 4]",
    "k: float32[batch, b, 4]",
    bounds={"batch": (1, 2), "a": (1, 30), "b": (1, 30)},
    probes=lambda: [
        {"q": torch.randn(2, a, 4), "k": torch.randn(2, b, 4)} for a, b in ((5, 8), (8, 8), (23, 23), (1, 1))
    ],
)
class SelfOrCross(nn.Module):
    def forward(self, q, k):
        scores = q @ k.transpose(1, 2)
        if q.shape[1] == k.shape[1]:
            n = q.shape[1]
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        return scores.softmax(-1) @ k


@trap(
    "far sizes",
    "more than 4096 elements are thinned",
    "x: float32[batch, time, 4]",
    bounds={"batch": (1, 8), "time": (1, 300)},
    probes=frames((2, 20), (8, 128), (8, 129), (4, 300)),
)
class ThinnedLarge(nn.Module):
    def forward(self, x):
        if x.numel() > 4096:
            x = x[:, ::2]
        return x.mean(1)


@trap(
    "far sizes",
    "CLIP's text length: everything after 77 is cut off",
    example=lambda: (torch.randint(0, 50, (2, 12)),),
    dims={"ids": "batch seq"},
    bounds={"batch": (1, 2), "seq": (1, 120)},
    probes=lambda: [{"ids": torch.randint(0, 50, (2, n))} for n in (12, 77, 78, 120, 1)],
)
class CutAt77(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 6)
        self.position = nn.Parameter(torch.randn(77, 6))

    def forward(self, ids):
        ids = ids[:, :77]
        return (self.embed(ids) + self.position[: ids.shape[1]]).mean(1)


@trap(
    "chunks",
    "a last frame that is at least half full is kept",
    "x: float32[batch, time]",
    bounds={"batch": (1, 2), "time": (16, 120)},
    probes=lambda: [{"x": torch.randn(2, t)} for t in (35, 16, 24, 23, 31, 32, 120)],
)
class KeepHalfFrame(nn.Module):
    def forward(self, x):
        rest = x.shape[1] % 16
        if rest >= 8:
            x = F.pad(x, (0, 16 - rest))
        elif rest:
            x = x[:, :-rest]
        return x.reshape(x.shape[0], -1, 16).mean(-1)


@trap(
    "list lengths",
    "a pyramid of three maps, each of another size",
    example=lambda: {"maps": [torch.randn(1, 2, 8, 8), torch.randn(1, 2, 4, 4), torch.randn(1, 2, 2, 2)]},
    must_name="maps",
    probes=lambda: [{"maps": [torch.randn(1, 2, n, n) * s for n in (8, 4, 2)]} for s in (1.0, 10.0)],
)
class Pyramid(nn.Module):
    def forward(self, maps):
        total = maps[-1].mean((2, 3))
        for level in maps[:-1]:
            total = total + level.mean((2, 3)) / len(maps)
        return total
