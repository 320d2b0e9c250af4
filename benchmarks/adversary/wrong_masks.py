"""Wrong files of models with masks and lengths: holes, empty rows, off by one, ignored beyond a length."""

from __future__ import annotations

import torch
from case import wrong
from torch import nn

DIMS = {"batch": (1, 4), "seq": (1, 40)}
INPUTS = ("x: float32[batch, seq, 4]", "mask: bool[batch, seq]")


class MaskedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 2
        scores = scores.masked_fill(~mask[:, None], -1e4)
        return scores.softmax(-1) @ v


def attend(change, fill=-1e4):
    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 2
        return scores.masked_fill(~change(mask)[:, None], fill).softmax(-1) @ v

    return forward


def holes(batch, seq):
    mask = torch.rand(batch, seq) < 0.6
    mask[:, 0] = True
    return mask


def mask_probes(value=1.0):
    def case(batch, seq, mask):
        return {"x": torch.randn(batch, seq, 4) * 2 * value, "mask": mask}

    full = torch.ones(2, 8, dtype=torch.bool)
    right = torch.arange(8) < torch.tensor([[8], [3]])
    left = right.flip(1)
    empty = torch.arange(8) < torch.tensor([[0], [5]])
    long = torch.arange(40) < torch.tensor([[40], [36]])
    return [
        case(2, 8, full),
        case(2, 8, right),
        case(2, 8, left),
        case(2, 8, empty),
        case(2, 9, holes(2, 9)),
        case(3, 20, holes(3, 20)),
        case(2, 40, long),
        case(1, 1, torch.ones(1, 1) > 0),
    ]


wrong(
    MaskedAttention,
    "masks",
    *INPUTS,
    bounds=DIMS,
    probes=mask_probes,
    forwards={
        "mask ignored": attend(lambda m: m | True),
        "holes filled": attend(lambda m: m.flip(1).int().cumsum(1).flip(1) > 0),
        "mask used as a length": attend(lambda m: torch.arange(m.shape[1]) < m.sum(1, keepdim=True)),
        "the mask of row 0 for all": attend(lambda m: m[:1].expand_as(m)),
        "ignored beyond 32": attend(lambda m: m | (torch.arange(m.shape[1]) > 32)),
        "the first token is kept": attend(lambda m: m | (torch.arange(m.shape[1]) == 0)),
        "empty rows are NaN": attend(lambda m: m, float("-inf")),
        "fill -1 for -1e4": attend(lambda m: m, -1.0),
    },
)


class LastValid(nn.Module):
    def forward(self, x, lengths):
        index = (lengths - 1)[:, None, None].expand(-1, 1, x.shape[2])
        return x.gather(1, index)[:, 0]


def by_length(change):
    return lambda self, x, lengths: x.gather(
        1, (change(lengths, x.shape[1]) - 1)[:, None, None].expand(-1, 1, x.shape[2])
    )[:, 0]


def length_probes():
    return [
        {"x": torch.randn(3, 9, 4), "lengths": torch.tensor(ls)} for ls in ([9, 9, 9], [9, 4, 2], [1, 1, 9], [8, 7, 6])
    ] + [{"x": torch.randn(1, 40, 4), "lengths": torch.tensor([n])} for n in (40, 39, 1)]


LENGTHS = ("x: float32[batch, seq, 4]", "lengths: int64[batch] = lengths(seq)")
wrong(
    LastValid,
    "lengths",
    *LENGTHS,
    bounds=DIMS,
    probes=length_probes,
    forwards={
        "the last column": by_length(lambda sizes, n: sizes * 0 + n),
        "the longest of the batch": by_length(lambda sizes, n: sizes * 0 + sizes.max()),
        "at least 2": by_length(lambda sizes, n: sizes.clamp(min=2)),
        "at most 32": by_length(lambda sizes, n: sizes.clamp(max=32)),
    },
)


class LengthMean(nn.Module):
    def forward(self, x, lengths):
        valid = torch.arange(x.shape[1]) < lengths[:, None]
        return (x * valid[..., None]).sum(1) / lengths[:, None]


def mean_by(valid_of, over=lambda sizes, x: sizes[:, None]):
    def forward(self, x, lengths):
        valid = valid_of(torch.arange(x.shape[1]), lengths[:, None])
        return (x * valid[..., None]).sum(1) / over(lengths, x)

    return forward


wrong(
    LengthMean,
    "lengths",
    *LENGTHS,
    bounds=DIMS,
    probes=length_probes,
    forwards={
        "<= for <": mean_by(lambda i, sizes: i <= sizes),
        "< for <=, minus one": mean_by(lambda i, sizes: i < sizes - 1),
        "lengths ignored": mean_by(
            lambda i, sizes: i >= -sizes, lambda sizes, x: torch.ones_like(x[:, 0]) * x.shape[1]
        ),
        "the first token left out of full rows": mean_by(lambda i, sizes: (i < sizes) & ((i > 0) | (sizes < 9))),
        "counted by the batch's longest": mean_by(
            lambda i, sizes: i < sizes, lambda sizes, x: sizes.max() + 0 * sizes[:, None]
        ),
    },
)


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, x):
        return self.attend(x, 0, 0)

    def attend(self, x, diagonal, window):
        n = x.shape[1]
        q, k, v = self.qkv(x).chunk(3, -1)
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        keep = j <= i + diagonal
        if window:
            keep = keep & (j > i - window)
        return (q @ k.transpose(1, 2)).masked_fill(~keep, float("-inf")).softmax(-1) @ v


wrong(
    Causal,
    "masks",
    "x: float32[batch, seq, 4]",
    bounds={"batch": (1, 3), "seq": (1, 80)},
    probes=lambda: [{"x": torch.randn(2, n, 4) * 2} for n in (8, 1, 2, 64, 65, 80)],
    forwards={
        "sees one token ahead": lambda self, x: self.attend(x, 1, 0),
        "a window of 64": lambda self, x: self.attend(x, 0, 64),
        "a window of 16": lambda self, x: self.attend(x, 0, 16),
        "sees everything": lambda self, x: self.attend(x, 100, 0),
    },
)


class HoleMean(nn.Module):
    """Mean over valid frames, and the share of valid ones."""

    def forward(self, x, mask):
        weight = mask.float()[..., None]
        total = weight.sum(1)
        return torch.where(total > 0, (x * weight).sum(1) / total.clamp(min=1), 0.0), mask.float().mean(1)


wrong(
    HoleMean,
    "masks",
    *INPUTS,
    bounds=DIMS,
    probes=mask_probes,
    forwards={
        "holes filled": lambda self, x, mask: (
            mean_of_valid(x, mask.flip(1).int().cumsum(1).flip(1) > 0),
            mask.float().mean(1),
        ),
        "empty rows are the plain mean": lambda self, x, mask: (
            torch.where(mask.any(1, keepdim=True), mean_of_valid(x, mask), x.mean(1)),
            mask.float().mean(1),
        ),
        "share of the first 32": lambda self, x, mask: (
            mean_of_valid(x, mask),
            (mask & (torch.arange(mask.shape[1]) < 32)).float().mean(1),
        ),
        "full rows skip the last": lambda self, x, mask: (
            torch.where(
                mask.all(1, keepdim=True), x[:, :-1].sum(1) / mask.sum(1, keepdim=True), mean_of_valid(x, mask)
            ),
            mask.float().mean(1),
        ),
    },
)


def mean_of_valid(x, mask):
    weight = mask.float()[..., None]
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1)
