"""Right files with unusual inputs: 0-d, complex, constant masks."""

from __future__ import annotations

import torch
from case import right
from torch import nn

BATCH = {"batch": (1, 4)}
SEQ = {"batch": (1, 3), "seq": (1, 20)}
SAME = "agrees with PyTorch by the plain tolerance"


def scalar(*values):
    return lambda: [{"x": torch.randn(2, 5), "t": torch.tensor(v)} for v in values]


XT = ("x: float32[batch, 5]", "t: float32[] in 0.1..5")


@right("0-d inputs", SAME, *XT, bounds=BATCH, probes=scalar(0.7, 1.0, 4.0))
class Temperature(nn.Module):
    def forward(self, x, t):
        return (x / t).softmax(-1)


@right("0-d inputs", SAME, *XT, bounds=BATCH, probes=scalar(0.7, 1.0, 4.0))
class Threshold0d(nn.Module):
    def forward(self, x, t):
        return torch.where(x > t, x, torch.zeros_like(x)), t * 2


@right("0-d inputs", SAME, "t: float32[] in -3..3", probes=lambda: [{"t": torch.tensor(v)} for v in (0.5, -2.0)])
class OnlyScalar(nn.Module):
    def forward(self, t):
        return torch.sin(t) + t**2


@right(
    "0-d inputs",
    SAME,
    "x: float32[batch, 5]",
    "n: int64[] < 5",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 5), "n": torch.tensor(i)} for i in (2, 0, 4)],
)
class ColumnByScalar(nn.Module):
    def forward(self, x, n):
        return x.index_select(1, n.reshape(1))


@right(
    "0-d inputs",
    SAME,
    "x: float32[batch, 5]",
    "flag: bool[]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 5), "flag": torch.tensor(b)} for b in (True, False)],
)
class FlagByScalar(nn.Module):
    def forward(self, x, flag):
        return torch.where(flag, x, -x)


@right(
    "0-d inputs",
    SAME,
    example=lambda: (torch.randn(2, 5), torch.tensor(1.0)),
    dims={"x": "batch 5"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 5), "t": torch.tensor(v)} for v in (1.0, 0.3, -2.0)],
)
class ScaleByExample(nn.Module):
    def forward(self, x, t):
        return x * t + t


@right(
    "complex",
    SAME,
    "x: complex64[batch, 6]",
    bounds=BATCH,
    routes=("dynamo",),
    probes=lambda: [{"x": torch.randn(2, 6, dtype=torch.complex64)}],
)
class Magnitude(nn.Module):
    def forward(self, x):
        return torch.view_as_real(x).pow(2).sum(-1).sqrt()


@right(
    "complex",
    SAME,
    "x: complex64[batch, 6]",
    bounds=BATCH,
    routes=("dynamo",),
    probes=lambda: [{"x": torch.randn(2, 6, dtype=torch.complex64)}],
)
class RealPart(nn.Module):
    def forward(self, x):
        pair = torch.view_as_real(x)
        return pair[..., 0] * 2 - pair[..., 1]


@right(
    "constant masks",
    SAME,
    example=lambda: (torch.randn(2, 6, 4), torch.ones(2, 6)),
    dims={"x": "batch seq 4", "mask": "batch seq"},
    bounds=SEQ,
    probes=lambda: [
        {"x": torch.randn(2, 6, 4), "mask": m}
        for m in (torch.ones(2, 6), torch.tensor([[1.0, 1, 1, 0, 0, 0], [1.0, 1, 1, 1, 1, 0]]))
    ],
)
class MaskedSum(nn.Module):
    def forward(self, x, mask):
        return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1.0)


@right(
    "constant masks",
    SAME,
    example=lambda: (torch.randint(0, 30, (2, 6)), torch.ones(2, 6, dtype=torch.long)),
    dims={"ids": "batch seq", "attention_mask": "batch seq"},
    bounds=SEQ,
    probes=lambda: [
        {"ids": torch.randint(0, 30, (2, 6)), "attention_mask": m}
        for m in (torch.ones(2, 6).long(), torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]))
    ],
)
class EmbeddedMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 4)

    def forward(self, ids, attention_mask):
        bias = (1.0 - attention_mask[:, None].float()) * torch.finfo(torch.float32).min
        h = self.embed(ids)
        return (h @ h.transpose(1, 2) + bias).softmax(-1) @ h


@right(
    "constant masks",
    SAME,
    "x: float32[batch, seq, 4]",
    "mask: bool[batch, seq] = keep",
    bounds=SEQ,
    probes=lambda: [{"x": torch.randn(2, 6, 4), "mask": torch.tensor([[True, False, True, True, False, True]] * 2)}],
)
class HolesMask(nn.Module):
    def forward(self, x, mask):
        scores = x.sum(-1).masked_fill(~mask, float("-inf"))
        return (scores.softmax(-1)[..., None] * x).sum(1)
