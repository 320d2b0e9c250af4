"""Sizes turned into plain numbers: by int and float, numpy, math, keys of dicts, patterns in strings."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from case import idiom
from torch import nn

IMAGE = "x: float32[batch, 3, h, w]"
SPAN = {"batch": (1, 3), "h": (4, 14), "w": (4, 14)}
SEQUENCE = "x: float32[batch, time, 6]"
LONG = {"batch": (1, 4), "time": (2, 16)}


def rearrange(x, pattern, **sizes):
    """einops' `rearrange` in thirty lines: a pattern is parsed, and its unknown sizes are worked out as ints."""
    left, right = ([tuple(part.split()) for part in _parts(side.strip())] for side in pattern.split("->"))
    if len(left) != len(x.shape):
        raise ValueError(f"{pattern} does not fit {list(x.shape)}")
    known = {name: int(size) for name, size in sizes.items()}
    for axis, names in enumerate(left):
        size, unknown = int(x.shape[axis]), [name for name in names if name not in known]
        rest = math.prod(known[name] for name in names if name in known)
        if len(unknown) > 1 or (not unknown and rest != size) or size % rest:
            raise ValueError(f"{names} of {size}")
        if unknown:
            known[unknown[0]] = size // rest
    order = [name for names in left for name in names]
    x = x.reshape([known[name] for name in order])
    x = x.permute([order.index(name) for names in right for name in names])
    return x.reshape([math.prod(known[name] for name in names) for names in right])


def _parts(side):
    inside, word, found = False, "", []
    for sign in f"{side} ":
        if sign in "()":
            inside = sign == "("
        elif sign == " " and not inside:
            if word:
                found.append(word)
            word = ""
        else:
            word += sign
    return found


@idiom("x: float32[batch, 3, h, w]", batch=(1, 3), h=(2, 12), w=(2, 12), multiples={"h": 2, "w": 2})
class PatchesByPattern(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.back = nn.Linear(12, 8), nn.Linear(8, 12)

    def forward(self, x):
        h = x.shape[2] // 2
        tokens = self.embed(rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2))
        y = self.back(torch.relu(tokens))
        return rearrange(y, "b (h w) (p q c) -> b c (h p) (w q)", h=h, p=2, q=2)


@idiom(SEQUENCE, **LONG)
class HeadsByPattern(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 18)

    def forward(self, x):
        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=2) for t in self.qkv(x).chunk(3, dim=-1))
        return rearrange((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v, "b h n d -> b n (h d)")


@idiom("x: float32[time, 6]", time=(1, 16))
class RampByLen(nn.Module):
    """Weights from a list over `len`, as fade-ins and temporal weights are made."""

    def forward(self, x):
        ramp = torch.tensor([(i + 1) / len(x) for i in range(len(x))], dtype=x.dtype)
        return x * ramp[:, None], len(x) * x.mean(0)


@idiom(SEQUENCE, **LONG)
class FloatOfSize(nn.Module):
    def forward(self, x):
        n = float(x.size(1))
        centred = x - x.sum(dim=1, keepdim=True) / n
        cov = torch.bmm(centred.transpose(1, 2), centred) / (n - 1.0)
        return cov, torch.log(torch.tensor(n)) * cov.diagonal(dim1=1, dim2=2).sum(-1)


@idiom("x: float32[batch, time, 2, 3]", **LONG)
class SizeObjects(nn.Module):
    """Shapes put together as tuples and `torch.Size`s."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        lead = x.shape[:-2]
        y = self.fc(x.reshape(lead.numel(), -1)).view(lead + (4,))
        new = torch.Size([*lead, 2, 2])
        assert y.numel() == new.numel()
        z = y.view(new).transpose(-1, -2).contiguous()
        return z.view(z.size()[:-2] + (-1,)), y.new_zeros(lead[:1] + torch.Size((3,)))


@idiom(IMAGE, **SPAN)
class NumpyProductOfShape(nn.Module):
    def forward(self, x):
        pixels = np.prod(x.shape[2:])
        flat = x.reshape(x.shape[0], -1, int(pixels))
        return flat.sum(-1) / float(pixels), torch.bmm(flat, flat.transpose(1, 2)).div(np.prod(x.shape[1:]))


@idiom(SEQUENCE, **LONG)
class LengthScaledAttention(nn.Module):
    """Scores scaled by the logarithm of the length over that of training."""

    def forward(self, x):
        n, d = x.shape[1], x.shape[2]
        scale = max(math.log(n) / math.log(8), 1.0) / math.sqrt(d)
        return torch.softmax(torch.matmul(x, x.transpose(-1, -2)) * scale, dim=-1) @ x / math.sqrt(n)


@idiom(SEQUENCE, batch=(1, 4), time=(4, 19))
class FoldedByDivmod(nn.Module):
    def forward(self, x):
        rows, left = divmod(x.size(1), 4)
        body = x[:, : x.size(1) - left].reshape(x.size(0), rows, 4, -1).amax(2)
        tail = x[:, x.size(1) - left :].sum(1, keepdim=True)
        return torch.cat([body, tail / max(left, 1)], dim=1)


@idiom(IMAGE, **SPAN)
class TensorOfSizes(nn.Module):
    """Boxes brought to pixels, as DETR's postprocessing does with `target_sizes`."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        h, w = x.shape[-2:]
        cx, cy, bw, bh = self.head(x.mean((2, 3))).sigmoid().unbind(-1)
        boxes = torch.stack([cx - bw / 2, cy - bh / 2, cx + bw / 2, cy + bh / 2], dim=-1)
        return boxes * torch.tensor([w, h, w, h], dtype=x.dtype), torch.as_tensor(x.shape[-2:]).float().prod()


@idiom(IMAGE, **SPAN)
class ResizedByRounding(nn.Module):
    """The sides are scaled so that the shorter becomes six, as detection transforms do."""

    def forward(self, x):
        h, w = int(x.shape[-2]), int(x.shape[-1])
        factor = 6.0 / min(h, w)
        size = (int(math.floor(h * factor + 0.5)), int(round(w * factor)))
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


@idiom("wavs: float32[batch, time]", "ratio: float32[batch] in 0.1..1", batch=(1, 4), time=(4, 32))
class RelativeLengths(nn.Module):
    """speechbrain's lengths: shares of the longest, made frames after the strides."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 4, stride=2, padding=1)

    def forward(self, wavs, ratio):
        y = self.conv(wavs.unsqueeze(1)).transpose(1, 2)
        frames = torch.round(ratio * y.shape[1]).long().clamp(min=1)
        mask = torch.arange(y.shape[1])[None] < frames[:, None]
        return (y * mask.unsqueeze(-1)).sum(1) / frames.unsqueeze(1), torch.ceil(ratio * float(wavs.shape[-1])).int()


@idiom(SEQUENCE, batch=(1, 3), time=(1, 12))
class SinusoidsByMath(nn.Module):
    """The table of positions filled in by two loops over numbers."""

    def forward(self, x):
        table = torch.zeros(x.size(1), x.size(2))
        for position in range(x.size(1)):
            for i in range(0, x.size(2), 2):
                angle = position / (10000 ** (i / x.size(2)))
                table[position, i] = math.sin(angle)
                table[position, i + 1] = math.cos(angle)
        return x + table.unsqueeze(0)


@idiom(IMAGE, **SPAN)
class CoordinatesByStringKey(nn.Module):
    """Coordinates kept in a dict whose key is the size in words."""

    def __init__(self):
        super().__init__()
        self.grids = {}

    def forward(self, x):
        key = f"{x.shape[2]}x{x.shape[3]}"
        if key not in self.grids:
            ys, xs = torch.meshgrid(torch.arange(x.shape[2]), torch.arange(x.shape[3]), indexing="ij")
            self.grids[key] = torch.stack([xs / x.shape[3], ys / x.shape[2]])
        return torch.cat([x, self.grids[key].expand(len(x), -1, -1, -1)], dim=1)
