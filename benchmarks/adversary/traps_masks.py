"""Traps of masks with holes, fully masked rows, 0-d and complex inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import trap
from torch import nn

BATCH = {"batch": (1, 4)}
ROWS = {"batch": (1, 8)}
SEQ = {"batch": (1, 3), "seq": (2, 12)}
MASKED = ("x: float32[batch, seq, 4]", "mask: bool[batch, seq]")
X6 = "x: float32[batch, 6]"

FULL = [[1, 1, 1, 1, 1, 1]] * 2
PADDED = [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]]
LEFT = [[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]]
HOLES = [[1, 0, 1, 1, 0, 1], [1, 1, 0, 0, 1, 0]]
EMPTY = [[0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]


def masks(*rows):
    return lambda: [{"x": torch.randn(2, 6, 4), "mask": torch.tensor(row).bool()} for row in rows]


def features(*scales):
    return lambda: [{"x": torch.randn(2 + i % 3, 6) * s} for i, s in enumerate(scales)]


@trap(
    "masks with holes",
    "a prefix mask is a slice, others are gathered",
    *MASKED,
    bounds=SEQ,
    probes=masks(PADDED, FULL, HOLES, LEFT),
)
class PrefixOrHoles(nn.Module):
    def forward(self, x, mask):
        if (mask[:, 1:] <= mask[:, :-1]).all():
            return (x * mask[..., None]).cumsum(1)[:, -1] / mask.sum(1, keepdim=True).clamp(min=1)
        return (x * mask[..., None]).amax(1)


@trap(
    "fully masked rows",
    "rows without a valid token answer zeros",
    *MASKED,
    bounds=SEQ,
    probes=masks(FULL, PADDED, EMPTY, HOLES),
)
class EmptyRows(nn.Module):
    def forward(self, x, mask):
        scores = x.sum(-1).masked_fill(~mask, float("-inf"))
        weight = scores.softmax(-1)
        if (~mask).all(1).any():
            weight = torch.nan_to_num(weight)
        return (weight[..., None] * x).sum(1)


@trap(
    "fully masked rows",
    "attention of torch with a boolean mask",
    *MASKED,
    bounds=SEQ,
    probes=masks(FULL, PADDED, EMPTY, HOLES, LEFT),
)
class SdpaMask(nn.Module):
    def forward(self, x, mask):
        q = x[:, None]
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask[:, None, None])[:, 0]


@trap(
    "masks with holes",
    "left padding turns the sequence round",
    *MASKED,
    bounds=SEQ,
    probes=masks(PADDED, FULL, LEFT, HOLES),
)
class LeftPadding(nn.Module):
    def forward(self, x, mask):
        if not mask[:, 0].all():
            x = x.flip(1)
        return x[:, 0] + x.mean(1)


@trap(
    "fully masked rows",
    "torch's encoder takes a fast path with a padding mask",
    *MASKED,
    bounds=SEQ,
    probes=lambda: [{"x": torch.randn(2, 6, 4), "mask": ~torch.tensor(m).bool()} for m in (FULL, PADDED, HOLES)],
)
class PaddedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x, mask):
        h = self.encoder(x, src_key_padding_mask=mask)
        return h.masked_fill(mask[..., None], 0.0)


@trap(
    "masks with holes",
    "a mask of 0 and 1 or an additive one, recognized by its values",
    example=lambda: (torch.randn(2, 6, 6), torch.ones(2, 6)),
    dims={"scores": "batch 6 6", "mask": "batch 6"},
    bounds=BATCH,
    probes=lambda: [
        {"scores": torch.randn(2, 6, 6), "mask": m}
        for m in (torch.ones(2, 6), torch.tensor(PADDED).float(), (1 - torch.tensor(PADDED).float()) * -3.0)
    ],
)
class KindOfMask(nn.Module):
    def forward(self, scores, mask):
        if mask.min() >= 0:
            mask = (1 - mask) * -3.0
        return (scores + mask[:, None]).softmax(-1)


@trap(
    "masks with holes",
    "the mean of selected elements, of which there may be none",
    "x: float32[n] in -1..1",
    bounds={"n": (1, 20)},
    probes=lambda: [{"x": torch.linspace(-1, 1, 9)}, {"x": -torch.rand(7)}, {"x": torch.tensor([0.9])}],
)
class SelectedMean(nn.Module):
    def forward(self, x):
        chosen = x[x > 0.5]
        if chosen.numel() == 0:
            return x.max()
        return chosen.mean()


@trap(
    "0-d inputs",
    "a limit of 0 turns the compression off",
    X6,
    "t: float32[] in 0..2",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6), "t": torch.tensor(v)} for v in (0.5, 0.0, 2.0)],
)
class ThresholdZero(nn.Module):
    def forward(self, x, t):
        if t == 0:
            return x
        return torch.tanh(x / t) * t


@trap(
    "0-d inputs",
    "one element is picked by a number, also from the end",
    X6,
    "i: int64[] in -6..5",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6), "i": torch.tensor(v)} for v in (2, 0, -1, 5, -6)],
)
class PickOne(nn.Module):
    def forward(self, x, i):
        return x[:, i]


@trap(
    "complex inputs",
    "a spectrum whose phase counts only above a level",
    "z: complex64[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"z": torch.randn(2, 6, dtype=torch.complex64) * s} for s in (1.0, 1e-4, 30.0)],
)
class SpectrumPhase(nn.Module):
    def forward(self, z):
        level = z.abs()
        if level.max() < 1e-2:
            return level
        return level * torch.cos(z.angle())
