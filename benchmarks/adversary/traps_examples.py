"""Traps of dummy examples: constant masks, zeros, ones, flags, Python numbers in the call."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import trap
from torch import nn

BATCH = {"batch": (1, 4)}
SEQ = {"batch": (1, 4), "seq": (1, 12)}
XSEQ = {"x": "batch seq 4", "mask": "batch seq"}


def with_masks(*rows, dtype=torch.float32):
    return [{"x": torch.randn(2, 6, 4), "mask": torch.tensor(row).to(dtype)} for row in rows]


ONES = [[1, 1, 1, 1, 1, 1]] * 2
PADDED = [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]]
HOLES = [[1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 1]]


@trap(
    "constant mask",
    "a mask of ones as the example; padding takes the other path",
    example=lambda: (torch.randn(2, 6, 4), torch.ones(2, 6)),
    dims=XSEQ,
    bounds=SEQ,
    probes=lambda: with_masks(ONES, PADDED, HOLES),
)
class MaskAll(nn.Module):
    def forward(self, x, mask):
        if mask.all():
            return x.mean(1)
        weight = mask[..., None]
        return (x * weight).sum(1) / weight.sum(1).clamp(min=1)


@trap(
    "constant mask",
    "HF style: a mask without zeros is dropped",
    example=lambda: {"x": torch.randn(2, 6, 4), "mask": torch.ones(2, 6, dtype=torch.long)},
    dims=XSEQ,
    bounds=SEQ,
    probes=lambda: with_masks(ONES, PADDED, HOLES, dtype=torch.long),
)
class DropsFullMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def prepare(self, mask):
        if mask is None or not (mask == 0).any():
            return None
        return (1.0 - mask[:, None].float()) * -1e9

    def forward(self, x, mask):
        bias = self.prepare(mask)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2)
        if bias is not None:
            scores = scores + bias
        return scores.softmax(-1) @ v


@trap(
    "0-d example",
    "the layer is chosen by a number",
    example=lambda: (torch.randn(2, 6), torch.tensor(1)),
    dims={"x": "batch 6"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6), "n": torch.tensor(i)} for i in (1, 0, 2)],
)
class LayerByNumber(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x, n):
        return self.layers[int(n)](x)


@trap(
    "0-d example",
    "a factor is read with float()",
    example=lambda: (torch.randn(2, 6), torch.tensor(1.0)),
    dims={"x": "batch 6"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6), "n": torch.tensor(v)} for v in (1.0, 2.5, -1.0, 0.0)],
)
class TimesFloat(nn.Module):
    def forward(self, x, n):
        return x * float(n)


@trap(
    "zeros as example",
    "zeros as a dummy: nothing to normalize",
    example=lambda: (torch.zeros(2, 7, 8),),
    dims={"x": "batch seq 8"},
    bounds=SEQ,
    probes=lambda: [{"x": torch.zeros(2, 7, 8)}, {"x": torch.randn(2, 7, 8)}, {"x": torch.randn(1, 3, 8) * 20}],
)
class ZerosDummy(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        if x.abs().sum() > 0:
            x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        return self.linear(x)


@trap(
    "ones as example",
    "ids of ones as a dummy: no padding in sight",
    example=lambda: (torch.ones(2, 5, dtype=torch.long),),
    dims={"ids": "batch seq"},
    bounds=SEQ,
    probes=lambda: [
        {"ids": torch.ones(2, 5).long()},
        {"ids": torch.randint(1, 30, (2, 5))},
        {"ids": torch.tensor([[7, 3, 0, 0]])},
    ],
)
class OnesIds(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 6, padding_idx=0)

    def forward(self, ids):
        h = self.embed(ids)
        if (ids == 0).any():
            keep = (ids != 0).float()[..., None]
            return (h * keep).sum(1) / keep.sum(1).clamp(min=1)
        return h.mean(1)


@trap(
    "flags",
    "a flag as a tensor",
    example=lambda: {"x": torch.randn(2, 6), "normalize": torch.tensor(True)},
    dims={"x": "batch 6"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6), "normalize": torch.tensor(b)} for b in (True, False)],
)
class FlagTensor(nn.Module):
    def forward(self, x, normalize):
        if normalize:
            return F.normalize(x, dim=-1)
        return x


@trap(
    "python numbers",
    "a Python number in the call is a constant of the file",
    example=lambda: {"x": torch.randn(2, 6), "scale": 2.5},
    dims={"x": "batch 6"},
    bounds=BATCH,
    must_name="scale",
    probes=lambda: [{"x": torch.randn(2, 6), "scale": 2.5}, {"x": torch.randn(1, 6), "scale": 2.5}],
)
class PythonScale(nn.Module):
    def forward(self, x, scale):
        return x * scale if scale != 1.0 else x


@trap(
    "python numbers",
    "a Python flag in the call is a constant of the file",
    example=lambda: {"x": torch.randn(2, 6), "return_norm": True},
    dims={"x": "batch 6"},
    bounds=BATCH,
    must_name="return_norm",
    probes=lambda: [{"x": torch.randn(b, 6), "return_norm": True} for b in (2, 1)],
)
class PythonFlag(nn.Module):
    def forward(self, x, return_norm=False):
        return (x, x.norm(dim=-1)) if return_norm else (x,)
