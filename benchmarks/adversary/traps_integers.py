"""Traps of integers: negatives, numbers above 63 and above 2**31, literals, bytes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import trap
from torch import nn

BATCH = {"batch": (1, 4)}
SEQ = {"batch": (1, 3), "seq": (1, 12)}
X6 = "x: float32[batch, 6]"


def whole(*rows, name="ids"):
    return lambda: [{name: torch.tensor(row)} for row in rows]


def example_ids(high=10, shape=(2, 5)):
    return lambda: (torch.randint(0, high, shape),)


@trap(
    "negative integers",
    "T5's relative position, by floor division",
    example=example_ids(),
    dims={"ids": "batch seq"},
    bounds=SEQ,
    probes=whole([[0, 3, 9, 8, 1]] * 2, [[-1, -4, -5, 7]], [[-8, -9, -100]]),
)
class RelativeCell(nn.Module):
    def forward(self, ids):
        return ids // 4, ids % 4


@trap(
    "large integers",
    "ids above 63 belong to a second table",
    example=example_ids(),
    dims={"ids": "batch seq"},
    bounds=SEQ,
    probes=whole([[0, 3, 9]] * 2, [[63, 64, 90]], [[127, 5, 64]]),
)
class SecondTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Embedding(64, 4), nn.Embedding(64, 4)

    def forward(self, ids):
        if ids.max() > 63:
            return self.first(ids % 64) + self.second(ids // 64)
        return self.first(ids)


@trap(
    "large integers",
    "microseconds since the epoch do not fit into 32 bits",
    "stamp: int64[batch, seq] in 0..4000000000000000",
    bounds={"batch": (1, 3), "seq": (2, 12)},
    probes=whole(
        [[1, 2, 30]], [[1700000000000000, 1700000000000123, 1700000000500000]], [[2**31, 2**33 + 1, 5]], name="stamp"
    ),
)
class TimeSteps(nn.Module):
    def forward(self, stamp):
        step = stamp[:, 1:] - stamp[:, :-1]
        if (stamp >= 2**31).any():
            step = step // 1000
        return step


@trap(
    "literals",
    "255 marks pixels without a label",
    example=example_ids(20, (2, 4, 4)),
    dims={"label": "batch 4 4"},
    bounds=BATCH,
    probes=lambda: [
        {"label": torch.randint(0, 20, (2, 4, 4))},
        {"label": torch.where(torch.rand(2, 4, 4) < 0.3, 255, 3)},
        {"label": torch.full((1, 4, 4), 255)},
    ],
)
class IgnoreLabel(nn.Module):
    def forward(self, label):
        if (label == 255).any():
            valid = label != 255
            return (label * valid).sum((1, 2)).float() / valid.sum((1, 2)).clamp(min=1)
        return label.float().mean((1, 2))


@trap(
    "literals",
    "-100 marks targets that do not count",
    "logits: float32[batch, seq, 5]",
    "labels: int64[batch, seq] in -100..4",
    bounds=SEQ,
    probes=lambda: [
        {"logits": torch.randn(2, 4, 5), "labels": torch.tensor(v)}
        for v in ([[0, 1, 2, 3]] * 2, [[0, -100, 2, -100]] * 2, [[-100] * 4] * 2)
    ],
)
class IgnoreIndex(nn.Module):
    def forward(self, logits, labels):
        keep = labels >= 0
        picked = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        if (labels == -100).all():
            return torch.full((logits.shape[0],), -1.0)
        return -(picked * keep).sum(1) / keep.sum(1).clamp(min=1)


@trap(
    "literals",
    "rows of padding only are a special case",
    "ids: int64[batch, seq] < 100",
    bounds=SEQ,
    probes=whole([[5, 6, 0]] * 2, [[0, 0, 0], [1, 2, 3]], [[0]]),
)
class PadRows(nn.Module):
    def forward(self, ids):
        lengths = (ids != 0).sum(1)
        if (lengths == 0).any():
            lengths = lengths + 1
        return ids.sum(1).float() / lengths


@trap(
    "negative integers",
    "remainders of negative angles in whole degrees",
    "deg: int64[batch] in -720..720",
    bounds={"batch": (1, 8)},
    probes=whole([0, 90, 359], [-1, -360, -361], [720, -720], name="deg"),
)
class WholeDegrees(nn.Module):
    def forward(self, deg):
        turned = deg % 360
        if (deg < 0).any():
            turned = torch.where(turned > 180, turned - 360, turned)
        return turned


@trap(
    "bytes",
    "images of bytes are scaled, images of 0 and 1 are not",
    "image: uint8[batch, 3, 4, 4]",
    bounds=BATCH,
    probes=lambda: [
        {"image": torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)},
        {"image": torch.randint(0, 2, (2, 3, 4, 4), dtype=torch.uint8)},
        {"image": torch.zeros(1, 3, 4, 4, dtype=torch.uint8)},
    ],
)
class ScaleBytes(nn.Module):
    def forward(self, image):
        x = image.float()
        if image.max() > 1:
            x = x / 255
        return x.mean((2, 3))


@trap(
    "bytes",
    "sums of bytes wrap",
    "a: uint8[batch, 6]",
    "b: uint8[batch, 6]",
    bounds=BATCH,
    probes=lambda: [
        {"a": torch.randint(0, 100, (2, 6), dtype=torch.uint8), "b": torch.tensor([[v] * 6] * 2, dtype=torch.uint8)}
        for v in (3, 200, 255)
    ],
)
class BytesWrap(nn.Module):
    def forward(self, a, b):
        return a + b, (a - b)


@trap(
    "negative integers",
    "an arithmetic shift of negatives",
    "x: int32[batch, 6] in -1000..1000",
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.tensor(r, dtype=torch.int32)} for r in ([[1, 2, 3, 4, 5, 6]] * 2, [[-1, -2, -3, -7, -8, 999]])
    ],
)
class ShiftRight(nn.Module):
    def forward(self, x):
        return x >> 1


@trap(
    "integers decide sizes",
    "one_hot without a number of classes",
    example=lambda: (torch.tensor([0, 3, 1]),),
    dims={"ids": "n"},
    bounds={"n": (1, 8)},
    probes=whole([0, 3, 1], [0, 1], [5, 2, 9]),
)
class OneHotByData(nn.Module):
    def forward(self, ids):
        return F.one_hot(ids).float().sum(0)
