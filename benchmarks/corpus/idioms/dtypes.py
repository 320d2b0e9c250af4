"""Whole numbers, bools, 16-bit and mixed arithmetic."""

from __future__ import annotations

import torch
from case import idiom
from torch import nn


@idiom("x: int64[batch, time] in -50..50", batch=(1, 4), time=(1, 9))
class IntegerDivisions(nn.Module):
    def forward(self, x):
        return x // 7, x % 7, torch.div(x, 7, rounding_mode="trunc"), torch.remainder(x, -3), torch.fmod(x, 3)


@idiom("x: int64[batch] in -50..50", "y: int64[batch] in 1..9", batch=(1, 6))
class IntegerTrueDivide(nn.Module):
    def forward(self, x, y):
        return x / y, x.float() // y


@idiom("x: int64[batch] in 0..50", batch=(1, 6))
class BitTricks(nn.Module):
    def forward(self, x):
        return x & 12, x | 3, x ^ 5, x << 2, x >> 1, ~x


@idiom("x: int64[batch] in 1..9", batch=(1, 6))
class ScalarByTensor(nn.Module):
    def forward(self, x):
        return 17 // x, 17 % x, 2**x


@idiom("a: bool[batch, 5]", "b: bool[batch, 5]", batch=(1, 5))
class BooleanLogic(nn.Module):
    def forward(self, a, b):
        return a & ~b, a ^ b, (a | b).all(1), a.sum(1), a.float().mean(1), (a * b).any(1)


@idiom("mask: int64[batch, time] = keep-right-padded", "x: float32[batch, time]", batch=(1, 4), time=(2, 9))
class IntegerMaskToBias(nn.Module):
    def forward(self, mask, x):
        bias = (1 - mask) * -10000
        return (x + bias).softmax(-1)


@idiom("mask: int64[batch, time] = keep-right-padded", batch=(1, 4), time=(2, 9))
class PositionsFromMask(nn.Module):
    def forward(self, mask):
        position = mask.cumsum(-1) - 1
        return position.masked_fill(mask == 0, 1)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class HalfInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6).half()

    def forward(self, x):
        return self.fc(x.half()).float()


@idiom("x: float16[batch, time, 8]", batch=(1, 4), time=(1, 9))
class HalfLayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8).half()

    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(x))


@idiom("x: float32[batch, time, 8]", batch=(1, 4), time=(1, 9))
class BfloatInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8).bfloat16()

    def forward(self, x):
        return self.fc(x.bfloat16()).float()


@idiom("x: float32[batch, time, 8]", batch=(1, 4), time=(1, 9))
class RmsNormUpcast(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8).half())

    def forward(self, x):
        half = x.half()
        wide = half.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(half.dtype)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class AutocastBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.fc(x).float()


@idiom("x: float64[batch, 6]", batch=(1, 5))
class DoubleErf(nn.Module):
    def forward(self, x):
        return torch.erf(x) + torch.nn.functional.gelu(x)


@idiom("x: float32[batch, 6]", "n: int64[batch] in 1..5", batch=(1, 5))
class PromotionMixed(nn.Module):
    def forward(self, x, n):
        rows = n.unsqueeze(1)
        return x * rows, n + 0.5, (x > 0) + rows, rows * torch.tensor(2, dtype=torch.int32)


@idiom("x: uint8[batch, h, w, 3]", batch=(1, 3), h=(2, 8), w=(2, 8))
class ImageBytes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]))

    def forward(self, x):
        return ((x.float() / 255 - self.mean) / 0.25).permute(0, 3, 1, 2)


@idiom("x: float32[batch, 6] in -1..1", batch=(1, 5))
class ToBytesAndBack(nn.Module):
    def forward(self, x):
        y = ((x + 1) * 100).round().to(torch.uint8)
        return y, y.float() / 100


@idiom("x: float32[batch, 6]", batch=(1, 5))
class Roundings(nn.Module):
    def forward(self, x):
        return x.round(), x.floor().long(), x.trunc(), x.frac(), torch.round(x, decimals=1), x.sign()


@idiom("x: int32[batch, time] < 20", batch=(1, 4), time=(1, 9))
class Int32Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 4, padding_idx=0)

    def forward(self, x):
        return self.embed(x).sum(1), (x != 0).sum(1, dtype=torch.int32)


@idiom("ids: int64[total] < 9", "offsets: int64[2] in 0..1", total=(2, 9))
class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(9, 4, mode="mean")

    def forward(self, ids, offsets):
        return self.bag(ids, torch.cat([offsets[:1] * 0, offsets[1:]]))


@idiom("x: float32[batch, 6]", batch=(1, 5))
class NanAndInfinity(nn.Module):
    def forward(self, x):
        y = torch.where(x > 1, torch.tensor(float("inf")), x)
        return torch.nan_to_num(y - y.max(), nan=0.5, posinf=9.0, neginf=-9.0), torch.isfinite(y), torch.isinf(y).any()


@idiom("x: float32[batch, 8]", batch=(1, 5))
class FakeQuant(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127)
        scale = self.fc.weight.detach().abs().amax(1) / 127
        weight = torch.fake_quantize_per_channel_affine(
            self.fc.weight, scale, torch.zeros(4, dtype=torch.int32), 0, -127, 127
        )
        return nn.functional.linear(x, weight, self.fc.bias)


@idiom("x: float32[batch, 8]", batch=(1, 5))
class IntegerWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (4, 8), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(4, 1) / 50)

    def forward(self, x):
        return x @ (self.weight.float() * self.scale).t()


@idiom("x: float32[batch, 6]", batch=(1, 5))
class StraightThrough(nn.Module):
    def forward(self, x):
        hard = (x > 0).float()
        soft = torch.sigmoid(x)
        return hard + soft - soft.detach()
