"""Traps of examples that are placeholders: ones, arange, eye, one element, and masks that are additive."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import trap
from torch import nn

BATCH = {"batch": (1, 4)}
SEQ = {"batch": (1, 3), "seq": (1, 12)}


@trap(
    "arange as example",
    "positions that count up are a slice of the table",
    example=lambda: {"x": torch.randn(1, 6, 4), "positions": torch.arange(6)[None]},
    dims={"x": "batch seq 4", "positions": "batch seq"},
    bounds=SEQ,
    probes=lambda: [
        {"x": torch.randn(1, 6, 4), "positions": torch.arange(6)[None]},
        {"x": torch.randn(1, 6, 4), "positions": torch.tensor([[3, 4, 5, 6, 7, 8]])},
        {"x": torch.randn(2, 4, 4), "positions": torch.tensor([[0, 1, 2, 3], [0, 0, 1, 2]])},
    ],
)
class CountingPositions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(32, 4)

    def forward(self, x, positions):
        n = x.shape[1]
        if torch.equal(positions, torch.arange(n).expand_as(positions)):
            return x + self.table.weight[:n]
        return x + self.table(positions)


@trap(
    "arange as example",
    "an order that is the identity is skipped",
    example=lambda: {"x": torch.randn(5, 4), "order": torch.arange(5)},
    dims={"x": "5 4", "order": "5"},
    probes=lambda: [
        {"x": torch.randn(5, 4), "order": torch.arange(5)},
        {"x": torch.randn(5, 4), "order": torch.tensor([4, 3, 2, 1, 0])},
    ],
)
class IdentityOrder(nn.Module):
    def forward(self, x, order):
        if (order.diff() == 1).all():
            return x.cumsum(0)
        return x[order].cumsum(0)


@trap(
    "zeros as example",
    "an additive mask of zeros does nothing and is dropped",
    example=lambda: {"x": torch.randn(2, 6, 4), "bias": torch.zeros(6, 6)},
    dims={"x": "batch seq 4", "bias": "seq seq"},
    bounds=SEQ,
    probes=lambda: [
        {"x": torch.randn(2, 6, 4), "bias": torch.zeros(6, 6)},
        {"x": torch.randn(2, 6, 4), "bias": torch.full((6, 6), -1e4).triu(1)},
        {"x": torch.randn(2, 6, 4), "bias": torch.randn(6, 6)},
    ],
)
class AdditiveZeros(nn.Module):
    def forward(self, x, bias):
        scores = x @ x.transpose(1, 2)
        if bias.any():
            scores = scores + bias
        return scores.softmax(-1) @ x


@trap(
    "ones as example",
    "weights of ones are dropped",
    example=lambda: {"x": torch.randn(2, 6), "weights": torch.ones(2, 6)},
    dims={"x": "batch 6", "weights": "batch 6"},
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.randn(2, 6), "weights": torch.ones(2, 6)},
        {"x": torch.randn(2, 6), "weights": torch.rand(2, 6)},
        {"x": torch.randn(1, 6), "weights": torch.full((1, 6), 2.0)},
    ],
)
class WeightsOfOnes(nn.Module):
    def forward(self, x, weights):
        if not torch.all(weights == 1):
            x = x * weights / weights.mean()
        return x.cos()


@trap(
    "identity as example",
    "the unit pose is the identity matrix",
    example=lambda: {"points": torch.randn(5, 3), "pose": torch.eye(4)},
    dims={"points": "n 3", "pose": "4 4"},
    bounds={"n": (1, 9)},
    probes=lambda: [
        {"points": torch.randn(5, 3), "pose": torch.eye(4)},
        {"points": torch.randn(5, 3), "pose": torch.randn(4, 4)},
        {"points": torch.randn(1, 3), "pose": torch.diag(torch.tensor([2.0, 1.0, 1.0, 1.0]))},
    ],
)
class UnitPose(nn.Module):
    def forward(self, points, pose):
        if torch.allclose(pose, torch.eye(4)):
            return points * 1.0
        return points @ pose[:3, :3].T + pose[:3, 3]


@trap(
    "size one as example",
    "an example of one row and one step",
    example=lambda: (torch.randn(1, 1, 4),),
    dims={"x": "batch seq 4"},
    bounds=SEQ,
    probes=lambda: [{"x": torch.randn(b, s, 4)} for b, s in ((1, 1), (2, 1), (1, 5), (3, 12))],
)
class OneStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        out, last = self.rnn(x)
        return out - x.mean(1, keepdim=True), last.squeeze()


@trap(
    "size one as example",
    "an image of one pixel: every kernel is wider",
    example=lambda: (torch.zeros(1, 3, 1, 1),),
    dims={"image": "batch 3 height width"},
    bounds={"batch": (1, 2), "height": (1, 20), "width": (1, 20)},
    probes=lambda: [{"image": torch.randn(1, 3, h, w)} for h, w in ((1, 1), (1, 9), (20, 17), (2, 2))],
)
class OnePixel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image):
        h = self.conv(image)
        if min(h.shape[-2:]) > 2:
            h = F.max_pool2d(h, 2)
        return h.mean((2, 3))


@trap(
    "0-d example",
    "a step of zero starts the cache",
    example=lambda: {"x": torch.randn(2, 4), "step": torch.tensor(0), "state": torch.zeros(2, 4)},
    dims={"x": "batch 4", "state": "batch 4"},
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.randn(2, 4), "step": torch.tensor(step), "state": torch.randn(2, 4)} for step in (0, 1, 7, 100)
    ],
)
class StepZero(nn.Module):
    def forward(self, x, step, state):
        if step == 0:
            state = torch.zeros_like(x)
        if step % 8 == 7:
            state = state * 0.5
        return x + state * 0.9


@trap(
    "0-d example",
    "dropout by an input whose example is 0.0, and a scale of 1.0",
    example=lambda: {"x": torch.randn(2, 4), "noise": torch.tensor(0.0), "guidance": torch.tensor(1.0)},
    dims={"x": "batch 4"},
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.randn(2, 4), "noise": torch.tensor(noise), "guidance": torch.tensor(guidance)}
        for noise, guidance in ((0.0, 1.0), (0.5, 1.0), (0.0, 7.5), (0.2, 3.0))
    ],
)
class GuidanceOfOne(nn.Module):
    def forward(self, x, noise, guidance):
        if guidance > 1.0:
            x = x.mean(-1, keepdim=True) + guidance * (x - x.mean(-1, keepdim=True))
        return x + noise


@trap(
    "0-d example",
    "the number of steps is read",
    example=lambda: {"x": torch.randn(2, 4), "steps": torch.tensor(1)},
    dims={"x": "batch 4"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 4), "steps": torch.tensor(n)} for n in (1, 0, 2, 5)],
)
class NumberOfSteps(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, x, steps):
        for _ in range(min(int(steps), 6)):
            x = x + self.step(x).tanh()
        return x


@trap(
    "list lengths",
    "a list of tensors in the call: two now, of different lengths",
    example=lambda: {"xs": [torch.randn(1, 3, 4), torch.randn(1, 5, 4)]},
    dims={"xs.0": "1 a 4", "xs.1": "1 b 4"},
    bounds={"a": (1, 8), "b": (1, 8)},
    must_name="xs",
    probes=lambda: [{"xs": [torch.randn(1, a, 4), torch.randn(1, b, 4)]} for a, b in ((3, 5), (5, 5), (8, 1), (1, 1))],
)
class ListOfLengths(nn.Module):
    def forward(self, xs):
        longest = max(x.shape[1] for x in xs)
        padded = [F.pad(x, (0, 0, 0, longest - x.shape[1])) for x in xs]
        return torch.cat(padded).amax(0)


@trap(
    "ones as example",
    "lengths of ones: packed sequences",
    example=lambda: {"x": torch.randn(2, 6, 4), "lengths": torch.ones(2, dtype=torch.long)},
    dims={"x": "batch seq 4", "lengths": "batch"},
    bounds={"batch": (1, 3), "seq": (2, 8)},
    probes=lambda: [{"x": torch.randn(2, 6, 4), "lengths": torch.tensor(v)} for v in ([1, 1], [6, 6], [6, 2], [3, 5])],
)
class LengthsOfOnes(nn.Module):
    def forward(self, x, lengths):
        valid = torch.arange(x.shape[1]) < lengths[:, None]
        if valid.all():
            return x.mean(1)
        return (x * valid[..., None]).sum(1) / lengths[:, None].clamp(min=1)


@trap(
    "constant mask",
    "a causal mask as example is replaced by the causal kernel",
    example=lambda: {"x": torch.randn(2, 6, 4), "mask": torch.ones(6, 6).tril().bool()},
    dims={"x": "batch seq 4", "mask": "seq seq"},
    bounds=SEQ,
    probes=lambda: [
        {"x": torch.randn(2, 6, 4), "mask": torch.ones(6, 6).tril().bool()},
        {"x": torch.randn(2, 6, 4), "mask": torch.ones(6, 6).bool()},
        {"x": torch.randn(2, 6, 4), "mask": torch.eye(6).bool()},
    ],
)
class CausalExample(nn.Module):
    def forward(self, x, mask):
        n = x.shape[1]
        if torch.equal(mask, torch.ones(n, n).tril().bool()):
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


@trap(
    "labels left out",
    "a loss is returned with labels only; the example has none of value -100",
    example=lambda: {"logits": torch.randn(4, 6), "labels": torch.tensor([1, 2, 3, 0])},
    dims={"logits": "batch 6", "labels": "batch"},
    bounds={"batch": (1, 6)},
    probes=lambda: [
        {"logits": torch.randn(4, 6), "labels": torch.tensor(v)} for v in ([1, 2, 3, 0], [1, -100, -100, 5], [5] * 4)
    ],
)
class LossWithIgnored(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels, reduction="none")
