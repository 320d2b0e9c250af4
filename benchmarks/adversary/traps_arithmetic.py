"""Traps of arithmetic: integers that wrap, negative division, ties, NaN by other words, narrow casts, 0-d promotion."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import trap
from torch import nn
from traps_masks import BATCH, X6, features

SEQ = {"batch": (1, 3), "seq": (1, 12)}
WORDS = "ids: int32[batch, seq]"
LONGS = "ids: int64[batch, seq]"


def whole(*rows, dtype=torch.int64):
    return lambda: [{"ids": torch.tensor(row, dtype=dtype)} for row in rows]


def rows(*values):
    return lambda: [{"x": torch.randn(2, 6)}, *({"x": torch.tensor([value])} for value in values)]


@trap(
    "integers that wrap",
    "a hash of 32-bit ids wraps",
    WORDS,
    bounds=SEQ,
    probes=whole([[0, 3, 9]], [[70000, 2**31 - 1, -5]], [[-(2**31), 65536, 1]], dtype=torch.int32),
)
class HashOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, 4)

    def forward(self, ids):
        return self.table((ids * 40503 + 11) % 64)


@trap(
    "integers that wrap",
    "a sum of 32-bit numbers is 64 bits wide, a cumsum of a product is not",
    WORDS,
    bounds=SEQ,
    probes=whole([[1, 2, 3]], [[2**30, 2**30, 2**30]], [[-(2**31), -1, 7]], dtype=torch.int32),
)
class SumOfWords(nn.Module):
    def forward(self, ids):
        return ids.sum(-1), ids * ids, (ids + ids).cumsum(-1)


@trap(
    "integers that wrap",
    "16-bit samples are averaged in their own dtype",
    "x: int16[batch, seq]",
    bounds=SEQ,
    probes=lambda: [
        {"x": torch.tensor([[3, -4, 5]], dtype=torch.int16)},
        {"x": torch.tensor([[32767, -32768, 20000]], dtype=torch.int16)},
    ],
)
class AveragesSamples(nn.Module):
    def forward(self, x):
        return (x + x.flip(-1)) // 2


@trap(
    "integers that wrap",
    "n-gram hashes: shift, xor, remainder",
    LONGS,
    bounds=SEQ,
    probes=whole([[0, 3, 9]], [[123456, 2**40, 5]], [[-1, -77, 2**62]]),
)
class NgramHash(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(97, 4)

    def forward(self, ids):
        mixed = torch.bitwise_xor(ids, ids >> 3) * 31
        return self.table(torch.remainder(mixed, 97))


@trap(
    "negative division",
    "three kinds of division and two of remainders",
    LONGS,
    bounds=SEQ,
    probes=whole([[1, 5, 9]], [[-1, -5, -9]], [[0, -8, 8]]),
)
class KindsOfDivision(nn.Module):
    def forward(self, ids):
        trunc = torch.div(ids, 4, rounding_mode="trunc")
        floor = torch.div(ids, -3, rounding_mode="floor")
        return trunc, floor, torch.fmod(ids, 4), torch.remainder(ids, -3), ids / 4


@trap(
    "negative division",
    "float floor division and remainder",
    X6,
    bounds=BATCH,
    probes=rows([-0.3, -1.5, 0.0, 2.25, 7.5, -7.5], [0.1, 0.2, 0.3, 0.7, 0.9, 1.0]),
    tolerance=1e-3,
)
class FloatFloor(nn.Module):
    def forward(self, x):
        return x // 0.25, torch.remainder(x, 0.75), torch.fmod(x, 0.75)


@trap(
    "ties",
    "topk of ties, summed by weights of the places",
    "x: float32[batch, 6] in 0..1",
    bounds=BATCH,
    probes=lambda: [{"x": torch.rand(2, 6)}, {"x": torch.tensor([[0.5, 0.5, 0.25, 0.5, 0.25, 0.0]])}],
)
class TopkValuesOfTies(nn.Module):
    def forward(self, x):
        values, places = x.topk(3, -1)
        return values, (places >= 0).sum(-1)


@trap(
    "ties",
    "a stable sort of rounded scores carries the payload along",
    "x: float32[batch, 6] in 0..4",
    "payload: float32[batch, 6]",
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.rand(2, 6) * 4, "payload": torch.randn(2, 6)},
        {"x": torch.tensor([[1.0, 1.2, 0.9, 3.0, 3.1, 1.0]]), "payload": torch.randn(1, 6)},
    ],
)
class StablePayload(nn.Module):
    def forward(self, x, payload):
        order = torch.sort(x.round(), dim=-1, stable=True, descending=True).indices
        return payload.gather(-1, order)


@trap(
    "ties",
    "unique values with counts and inverse",
    "ids: int64[n] < 9",
    bounds={"n": (1, 20)},
    probes=lambda: [{"ids": torch.tensor(v)} for v in ([1, 2, 3], [8, 8, 0, 8, 3, 0], [4])],
)
class UniqueCounts(nn.Module):
    def forward(self, ids):
        values, inverse, counts = torch.unique(ids, return_inverse=True, return_counts=True)
        return counts[inverse], values


@trap(
    "ties",
    "the median of an even number is the lower one; kthvalue and mode of ties",
    X6,
    bounds=BATCH,
    probes=rows([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 2.0, 2.0, 4.0, 4.0, 4.0]),
)
class LowerMedian(nn.Module):
    def forward(self, x):
        return x.median(-1).values, x.kthvalue(4, -1).values, x.nanmedian(-1).values


@trap(
    "NaN",
    "missing values are those that differ from themselves",
    X6,
    bounds=BATCH,
    probes=rows([math.nan, 1.0, 2.0, 3.0, 4.0, 5.0], [math.nan] * 6),
)
class NotEqualToItself(nn.Module):
    def forward(self, x):
        return torch.where(x != x, torch.zeros_like(x), x).cumsum(-1)


@trap(
    "NaN",
    "missing values are counted after a scale",
    X6,
    bounds=BATCH,
    probes=rows([math.nan, 1.0, 2.0, 3.0, 4.0, 5.0], [math.nan] * 6),
)
class MissingAfterScale(nn.Module):
    def forward(self, x):
        scaled = x * 0.1 + 1
        valid = ~torch.isnan(scaled)
        return torch.where(valid, scaled, 0.0).sum(-1) / valid.sum(-1).clamp(min=1)


@trap(
    "NaN",
    "any NaN: the frame is dropped by an early return",
    X6,
    bounds=BATCH,
    probes=rows([math.nan, 1.0, 2.0, 3.0, 4.0, 5.0], [math.inf, 1.0, 2.0, 3.0, 4.0, 5.0]),
)
class DropsBrokenFrame(nn.Module):
    def forward(self, x):
        if not math.isfinite(float(x.sum())):
            return torch.zeros_like(x)
        return x * 2


@trap(
    "NaN",
    "no-data is infinite: compared with inf",
    X6,
    bounds=BATCH,
    probes=rows([math.inf, 1.0, 2.0, 3.0, 4.0, 5.0], [-math.inf, 1.0, 2.0, 3.0, 4.0, math.inf]),
)
class InfIsMissing(nn.Module):
    def forward(self, x):
        return x.masked_fill(x.abs() == float("inf"), 7.0).amax(-1)


@trap(
    "signed zero",
    "the sign is copied, and zero may be negative",
    X6,
    bounds=BATCH,
    probes=rows([-0.0, 0.0, 1.0, -1.0, -0.0, 5.0], [-0.0] * 6),
)
class CopiesSign(nn.Module):
    def forward(self, x):
        return torch.copysign(x.abs().clamp(min=0.5), x)


@trap(
    "signed zero",
    "angles on the axis, with zeros of either sign",
    "x: float32[batch, 2]",
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.randn(2, 2)},
        {"x": torch.tensor([[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]])},
        {"x": torch.tensor([[1.0, 0.0], [-1.0, 0.0]])},
    ],
)
class AngleOnAxis(nn.Module):
    def forward(self, x):
        return torch.atan2(x[:, 0], x[:, 1])


@trap(
    "narrow casts",
    "half in the middle; beyond 65504 ONNX Runtime computes in float32, which is nearer to the truth",
    X6,
    bounds=BATCH,
    probes=features(1.0, 500.0, 1e-4),
)
class HalfInside(nn.Module):
    def forward(self, x):
        return (x.half() * 30).float().clamp(-1e6, 1e6)


@trap(
    "narrow casts",
    "bfloat16 keys under autocast",
    X6,
    bounds=BATCH,
    probes=features(1.0, 20.0, 1e-3),
    tolerance=3e-2,
)
class AutocastInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.linear(x)
        return h.float()


@trap(
    "narrow casts",
    "quantized by hand to int8, values saturate",
    X6,
    bounds=BATCH,
    probes=features(1.0, 100.0, 1e-3),
)
class FakeInt8(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale.clamp(min=1e-8)).round().clamp(-128, 127).to(torch.int8).float() * scale


@trap(
    "promotion",
    "a 0-d factor keeps the dtype of the tensor, a 1-d one does not",
    "x: float16[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6).half()}, {"x": torch.randn(1, 6).half() * 0.01}],
)
class ZeroDimPromotes(nn.Module):
    def forward(self, x):
        return x * torch.tensor(0.3, dtype=torch.float64), x * torch.tensor([0.3]), x.argmax(-1) * 0.5


@trap(
    "promotion",
    "bools are added, integers are divided",
    "x: bool[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.rand(2, 6) > 0.5}, {"x": torch.ones(1, 6).bool()}, {"x": torch.zeros(3, 6).bool()}],
)
class BoolsAdd(nn.Module):
    def forward(self, x):
        return x + x, x.sum(-1) / 4, x.cumsum(-1), ~x


@trap(
    "exact values",
    "edges of bins: bucketize with right, searchsorted without",
    "x: float32[batch, 6] in 0..4",
    bounds=BATCH,
    probes=lambda: [{"x": torch.rand(2, 6) * 4}, {"x": torch.tensor([[0.0, 1.0, 1.5, 2.0, 3.0, 4.0]])}],
)
class BinEdges(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([1.0, 1.5, 2.0, 3.0]))

    def forward(self, x):
        return torch.bucketize(x, self.edges, right=True), torch.searchsorted(self.edges, x)


@trap(
    "exact values",
    "two decimals, halves to even",
    "x: float32[batch, 6] in -4..4",
    bounds=BATCH,
    probes=lambda: [{"x": torch.rand(2, 6)}, {"x": torch.tensor([[0.125, 0.375, -0.125, 2.5, 1.0, 0.0]])}],
    tolerance=1e-5,
)
class TwoDecimals(nn.Module):
    def forward(self, x):
        return torch.round(x, decimals=2)


@trap(
    "exact values",
    "zero to the power of zero, x log x at zero, sinc at zero",
    "x: float32[batch, 6] in 0..3",
    bounds=BATCH,
    probes=lambda: [{"x": torch.rand(2, 6)}, {"x": torch.tensor([[0.0, 1.0, 2.0, 0.5, 0.0, 3.0]])}],
)
class ZeroToZero(nn.Module):
    def forward(self, x):
        return torch.pow(x, x), torch.xlogy(x, x), torch.sinc(x), torch.hypot(x, x)


@trap(
    "fully masked rows",
    "a padding mask of torch's attention with no token left",
    "x: float32[batch, seq, 4]",
    "padding: bool[batch, seq]",
    bounds={"batch": (1, 3), "seq": (2, 9)},
    probes=lambda: [
        {"x": torch.randn(2, 5, 4), "padding": torch.tensor(rows).bool()}
        for rows in (
            [[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]],
            [[1, 1, 1, 1, 1], [0, 0, 0, 1, 1]],
            [[1, 0, 1, 0, 1], [1, 1, 0, 0, 0]],
        )
    ],
)
class AttentionPadding(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x, padding):
        out, _ = self.attention(x, x, x, key_padding_mask=padding)
        return torch.nan_to_num(out)


@trap(
    "fully masked rows",
    "the logits of tokens that are not allowed are -inf, and maybe all of them",
    "logits: float32[batch, 6]",
    "allowed: bool[batch, 6]",
    bounds=BATCH,
    probes=lambda: [
        {"logits": torch.randn(2, 6), "allowed": torch.tensor(rows).bool()}
        for rows in ([[1, 1, 0, 1, 0, 1]] * 2, [[0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]])
    ],
)
class AllowedLogits(nn.Module):
    def forward(self, logits, allowed):
        masked = logits.masked_fill(~allowed, -torch.inf)
        return masked.softmax(-1), masked.logsumexp(-1), masked.argmax(-1)


@trap(
    "scatter",
    "duplicates are added, and the last of a plain write wins",
    "x: float32[n]",
    "ids: int64[n] in 0..4",
    bounds={"n": (1, 12)},
    probes=lambda: [
        {"x": torch.randn(n), "ids": ids}
        for n, ids in ((4, torch.tensor([0, 1, 2, 4])), (5, torch.tensor([3, 3, 3, 0, 0])))
    ],
)
class AddsDuplicates(nn.Module):
    def forward(self, x, ids):
        total = torch.zeros(5).index_add(0, ids, x)
        largest = torch.full((5,), -9.0).scatter_reduce(0, ids, x, "amax")
        return total, largest, torch.bincount(ids, minlength=5)


@trap(
    "padding",
    "an embedding with a padding index and a bag with empty bags",
    "ids: int64[batch, seq] < 20",
    bounds={"batch": (1, 3), "seq": (1, 8)},
    probes=whole([[3, 4, 5]], [[0, 0, 0]], [[0, 7, 0]]),
)
class BagOfPadding(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 4, mode="mean", padding_idx=0)

    def forward(self, ids):
        return self.bag(ids)


@trap(
    "state",
    "an embedding with max_norm rescales its own rows when they are used",
    "ids: int64[batch, seq] < 20",
    bounds={"batch": (1, 3), "seq": (1, 8)},
    probes=whole([[3, 4, 5]], [[0, 19, 7]], [[3, 3, 3]]),
    sequence=True,
)
class EmbeddingMaxNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4, max_norm=1.0)

    def forward(self, ids):
        return self.table(ids) * 1.0


@trap(
    "rounded sizes",
    "pools with ceil_mode and adaptive ones at sizes that do not divide",
    "x: float32[1, 2, length]",
    bounds={"length": (4, 40)},
    probes=lambda: [{"x": torch.randn(1, 2, n)} for n in (12, 13, 4, 39)],
)
class RoundedPools(nn.Module):
    def forward(self, x):
        a = F.max_pool1d(x, 3, 2, ceil_mode=True)
        b = F.avg_pool1d(x, 4, 3, padding=1, ceil_mode=True, count_include_pad=False)
        return a, b


@trap(
    "rounded sizes",
    "frames of a length that a factor of 0.3 rounds",
    "x: float32[1, 2, length]",
    bounds={"length": (4, 60)},
    probes=lambda: [{"x": torch.randn(1, 2, n)} for n in (12, 13, 10, 59)],
)
class ScaledLength(nn.Module):
    def forward(self, x):
        small = F.interpolate(x, scale_factor=0.3, mode="linear", align_corners=False)
        return F.interpolate(small, size=x.shape[-1], mode="nearest") - x
