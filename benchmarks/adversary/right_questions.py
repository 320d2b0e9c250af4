"""Right files of models that compare, search for missing values, read tables, or have rows without variance."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from case import right
from torch import nn

BATCH = {"batch": (1, 4)}
SEQ = {"batch": (1, 3), "seq": (2, 10)}
X6 = "x: float32[batch, 6]"
IDS = "ids: int64[batch, seq] < 6000"


def rows(*given):
    return lambda: [{"x": torch.randn(2, 6)}, *({"x": torch.tensor([row, row])} for row in given)]


def tokens(*given):
    return lambda: [{"ids": torch.randint(0, 6000, (2, 5))}, *({"ids": torch.tensor([row, row])} for row in given)]


@right(
    "missing values",
    "a tensor that is compared with itself",
    X6,
    bounds=BATCH,
    probes=rows([math.nan, 1.0, 2.0, 3.0, 4.0, 5.0]),
)
class ReplacesMissing(nn.Module):
    def forward(self, x):
        return torch.where(x != x, torch.zeros_like(x), x).tanh()


@right(
    "missing values",
    "missing values are found after a scale",
    X6,
    bounds=BATCH,
    probes=rows([math.nan, 1.0, math.nan, 3.0, 4.0, 5.0]),
)
class CountsMissing(nn.Module):
    def forward(self, x):
        valid = ~torch.isnan(x * 0.5 - 1)
        return torch.where(valid, x, 0.0).sum(-1) / valid.sum(-1).clamp(min=1)


@right(
    "missing values",
    "only infinity is asked for",
    X6,
    bounds=BATCH,
    probes=rows([math.inf, 1.0, -math.inf, 3.0, 4.0, 5.0]),
)
class CapsInfinity(nn.Module):
    def forward(self, x):
        return x.masked_fill(x.abs() == math.inf, 7.0).amax(-1)


@right(
    "missing values",
    "scores that are NaN in empty rows are cleaned; the input is never NaN",
    X6,
    "keep: bool[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6), "keep": torch.rand(2, 6) > p} for p in (0.3, 1.0, 0.0)],
)
class CleansEmptyRows(nn.Module):
    def forward(self, x, keep):
        return torch.nan_to_num(x.masked_fill(~keep, -math.inf).softmax(-1))


@right(
    "special tokens", "numbers from attributes", IDS, bounds=SEQ, probes=tokens([5998, 4, 5998, 7], [5999, 5998, 1, 0])
)
class SpecialTokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.separator, self.end = 5998, 5999
        self.words = nn.Embedding(6000, 4)

    def forward(self, ids):
        segment = (ids == self.separator).long().cumsum(1)
        ended = (ids == self.end).long().cumsum(1) > 0
        return self.words(ids) * (1 + segment)[..., None] * ~ended[..., None]


@right("tables", "whole numbers and bools in buffers", IDS, bounds=SEQ, probes=tokens([0, 17, 5999, 3]))
class PlainTables(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("groups", torch.arange(6000) % 50)
        self.register_buffer("allowed", torch.arange(6000) % 3 > 0)
        self.words = nn.Embedding(50, 4)

    def forward(self, ids):
        return self.words(self.groups[ids]) * self.allowed[ids][..., None]


@right("tables", "positions that are moved by two, as in RoBERTa", IDS, bounds=SEQ, probes=tokens([0, 17, 5999, 3]))
class MovedPositions(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("positions", torch.arange(200))
        self.words, self.places = nn.Embedding(6000, 4), nn.Embedding(202, 4)

    def forward(self, ids):
        return self.words(ids) + self.places(self.positions[: ids.shape[1]] + 2)


@right("tables", "masks that differ by one diagonal", X6, bounds=BATCH, probes=rows([1.0] * 6))
class TwoTriangles(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("below", torch.ones(64, 64).tril().bool())
        self.register_buffer("above", torch.ones(64, 64).tril(1).bool())

    def forward(self, x):
        scores = x[:, :, None] * x[:, None]
        near = scores.masked_fill(~self.below[:6, :6], -9.0)
        return near.softmax(-1) + scores.masked_fill(~self.above[:6, :6], -9.0).softmax(-1)


@right("flat rows", "a norm of rows without variance", X6, bounds=BATCH, probes=rows([0.7] * 6, [0.0] * 6))
class NormOfFlatRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(x)


@right("flat rows", "a deviation with an epsilon", X6, bounds=BATCH, probes=rows([0.5] * 6, [0.0] * 6))
class DeviationWithEpsilon(nn.Module):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-3).sqrt()


@right(
    "flat rows",
    "similarity of rows with zeros",
    X6,
    bounds=BATCH,
    probes=rows([0.0] * 6, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
)
class SimilarRows(nn.Module):
    def forward(self, x):
        unit = F.normalize(x, dim=-1)
        return unit @ unit[:1].T


@right(
    "checks",
    "a model that checks a size and nothing else",
    X6,
    bounds=BATCH,
    probes=rows([200.0] * 6),
    routes=("dynamo",),
)
class OnlyChecks(nn.Module):
    def forward(self, x):
        torch._check(x.shape[1] == 6)
        return x.tanh().exp()


@right(
    "limits", "limits far out, from attributes", X6, bounds=BATCH, probes=rows([249.0, 250.0, 251.0, -1300.0, 5.0, 0.0])
)
class FarLimits(nn.Module):
    def __init__(self):
        super().__init__()
        self.top, self.bottom = 250, -1300

    def forward(self, x):
        return torch.where(x > self.top, torch.full_like(x, 7.0), x.clamp(min=self.bottom))


@right(
    "scripted If",
    "zeros next to numbers of either sign",
    X6,
    bounds=BATCH,
    probes=rows([0.0, -1.0, 0.0, 1.0, -0.5, 0.5]),
)
class SignsAndZeros(nn.Module):
    def forward(self, x):
        return x.sign() * x.abs().sqrt(), (x == 0).sum(-1), F.softshrink(x)
