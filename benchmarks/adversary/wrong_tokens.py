"""Wrong files of models on tokens: indices from the end, padding ids."""

from __future__ import annotations

import torch
from case import wrong
from torch import nn


class FromTheEnd(nn.Module):
    """Indexing with negative numbers counts from the end."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 3))

    def forward(self, x):
        return self.table[x]


wrong(
    FromTheEnd,
    "integers",
    "x: int64[batch] in -9..8",
    bounds={"batch": (1, 6)},
    probes=lambda: [{"x": torch.tensor([0, 3, 8])}, {"x": torch.tensor([-1, -9, 2])}],
    forwards={
        "negatives are 0": lambda self, x: self.table[x.clamp(min=0)],
        "absolute value": lambda self, x: self.table[x.abs().clamp(max=8)],
    },
)


class PaddingId(nn.Module):
    """Token 0 is padding: it has no embedding, and does not count."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 6)

    def forward(self, ids):
        keep = (ids != 0).float()[..., None]
        return (self.embed(ids) * keep).sum(1) / keep.sum(1).clamp(min=1.0)


wrong(
    PaddingId,
    "integers",
    "ids: int64[batch, seq] < 50",
    bounds={"batch": (1, 4), "seq": (1, 12)},
    probes=lambda: [
        {"ids": torch.randint(1, 50, (2, 6))},
        {"ids": torch.tensor([[4, 9, 0, 0, 0]])},
        {"ids": torch.tensor([[0, 0, 0, 0, 0], [1, 2, 3, 4, 0]])},
        {"ids": torch.tensor([[4, 0, 9, 0, 2], [0, 0, 0, 7, 0]])},
    ],
    forwards={
        "padding counts": lambda self, ids: (self.embed(ids) * (ids != 0)[..., None]).mean(1),
        "padding has an embedding": lambda self, ids: (
            self.embed(ids).sum(1) / (ids != 0).float().sum(1, keepdim=True).clamp(min=1.0)
        ),
        "empty rows are NaN": lambda self, ids: (
            (self.embed(ids) * (ids != 0)[..., None]).sum(1) / (ids != 0).float().sum(1, keepdim=True)
        ),
        "padding by length": lambda self, ids: (
            (self.embed(ids) * (torch.arange(ids.shape[1]) < (ids != 0).sum(1, keepdim=True))[..., None]).sum(1)
            / (ids != 0).float().sum(1, keepdim=True).clamp(min=1.0)
        ),
        "one padded row is left out": lambda self, ids: (
            (self.embed(ids) * (ids != 0)[..., None]).sum(1) / (ids != 0).float().sum(1, keepdim=True).clamp(min=2.0)
        ),
    },
)
