"""Traps of models whose rows depend on each other."""

from __future__ import annotations

import torch
from case import trap
from torch import nn
from traps_masks import ROWS, X6, features

DEPENDS = "a server that merges requests would mix clients; the record must not call rows independent"


@trap("rows", DEPENDS, X6, bounds=ROWS, probes=features(1.0, 1.0, 1.0), rows="dependent")
class CumsumOverBatch(nn.Module):
    def forward(self, x):
        return x.cumsum(0)


@trap("rows", DEPENDS, X6, bounds=ROWS, probes=features(1.0, 1.0, 1.0), rows="dependent")
class RelativeToFirst(nn.Module):
    def forward(self, x):
        return x - x[:1]


@trap("rows", DEPENDS, X6, bounds=ROWS, probes=features(1.0, 1.0, 1.0), rows="dependent")
class PeakOfBatch(nn.Module):
    def forward(self, x):
        return x / x.abs().max().clamp(min=1e-6)


@trap(
    "rows",
    DEPENDS,
    example=lambda: (torch.randn(3, 6),),
    dims={"x": "batch 6"},
    bounds=ROWS,
    probes=features(1.0, 1.0, 1.0),
    rows="dependent",
)
class BatchStatistics(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / (x.std(0, unbiased=False) + 1e-3)


@trap("rows", DEPENDS, X6, bounds=ROWS, probes=features(1.0, 1.0, 1.0), rows="dependent")
class SortedOverBatch(nn.Module):
    def forward(self, x):
        return x.sort(0).values


@trap("rows", DEPENDS, X6, bounds=ROWS, probes=features(1.0, 1.0, 1.0), rows="dependent")
class InBatchSimilarity(nn.Module):
    def forward(self, x):
        return (x @ x.T).softmax(-1) @ x


@trap(
    "rows",
    "one loud row lowers all rows, and only then",
    X6,
    bounds=ROWS,
    probes=lambda: [{"x": torch.randn(2, 6)}, {"x": torch.cat([torch.randn(3, 6), torch.full((1, 6), 50.0)])}],
    rows="dependent",
)
class LoudRow(nn.Module):
    def forward(self, x):
        if (x > 40).any():
            return x * 0.1
        return x


@trap(
    "rows",
    "only rows after the second see the row before",
    X6,
    bounds=ROWS,
    probes=features(1.0, 1.0, 1.0),
    rows="dependent",
)
class LaterRows(nn.Module):
    def forward(self, x):
        return torch.cat([x[:2], x[2:] - x[1:-1][: x[2:].shape[0]]]) if x.shape[0] > 2 else x
