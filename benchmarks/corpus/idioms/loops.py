"""Python loops over sizes, values and modules."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import idiom
from torch import nn


@idiom("x: float32[batch, time, 8]", batch=(1, 4), time=(1, 20))
class RunningMeanOverTime(nn.Module):
    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        means = []
        for t in range(x.shape[1]):
            total = total + x[:, t]
            means.append(total / (t + 1))
        return torch.stack(means, 1)


@idiom("x: float32[batch, 6]", batch=(1, 9))
class LoopOverBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return torch.stack([self.fc(row) for row in x])


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(8, 40))
class SlidingWindows(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        out = []
        for start in range(0, x.shape[1] - 8 + 1, 4):
            out.append(self.fc(x[:, start : start + 8].reshape(x.shape[0], -1)))
        return torch.stack(out, 1)


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(4, 40), multiples={"time": 4})
class ChunkedNorm(nn.Module):
    def forward(self, x):
        parts = []
        for part in x.split(4, dim=1):
            parts.append(part - part.mean(1, keepdim=True))
        return torch.cat(parts, 1)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class ModuleListInOrder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(5))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


@idiom("x: float32[batch, 6]", "which: int64[1] < 4", batch=(1, 5))
class ModuleByItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(6, 3) for _ in range(4))

    def forward(self, x, which):
        return self.heads[which.item()](x)


@idiom("x: float32[batch, 6]", "which: int64[batch] < 3", batch=(1, 5))
class ModulePerRow(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(6, 3) for _ in range(3))

    def forward(self, x, which):
        return torch.stack([self.heads[int(w)](row) for row, w in zip(x, which)])


@idiom("x: float32[batch, 6]", "steps: int64[] in 1..6", batch=(1, 4))
class StepsFromTensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x, steps):
        for _ in range(int(steps)):
            x = torch.tanh(self.fc(x))
        return x


@idiom("x: float32[batch, 6]", batch=(1, 4))
class WhileTooLarge(nn.Module):
    def forward(self, x):
        while x.abs().max() > 0.5:
            x = x / 2
        return x


@idiom("x: float32[batch, time]", batch=(1, 3), time=(1, 30))
class WhileHalving(nn.Module):
    def forward(self, x):
        while x.shape[1] > 1:
            if x.shape[1] % 2:
                x = F.pad(x, (0, 1))
            x = x[:, ::2] + x[:, 1::2]
        return x


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(1, 16))
class LoopWithPrevious(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        ys = [x[:, 0]]
        for t in range(1, x.shape[1]):
            ys.append(torch.tanh(self.fc(torch.cat([x[:, t], ys[-1]], -1))))
        return torch.stack(ys, 1)


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(2, 14))
class NestedLoopsOverPairs(nn.Module):
    def forward(self, x):
        rows = []
        for i in range(x.shape[1]):
            row = []
            for j in range(x.shape[1]):
                row.append((x[:, i] * x[:, j]).sum(-1))
            rows.append(torch.stack(row, -1))
        return torch.stack(rows, 1)


@idiom("x: float32[batch, time, 4]", batch=(1, 3), time=(1, 16))
class WriteIntoZeros(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        for t in range(x.shape[1]):
            out[:, t] = x[:, : t + 1].max(1).values
        return out


@idiom("x: float32[batch, channels, 5]", batch=(1, 3), channels=(1, 9))
class LoopOverChannels(nn.Module):
    def forward(self, x):
        total = 0
        for c in range(x.shape[1]):
            total = total + x[:, c] * (c + 1)
        return total


@idiom("x: float32[batch, time, 6]", batch=(1, 3), time=(1, 16))
class ZipOverUnbind(nn.Module):
    def forward(self, x):
        out = []
        for a, b in zip(x.unbind(1), x.flip(1).unbind(1)):
            out.append(a * b)
        return torch.stack(out, 1)


@idiom("x: float32[batch, 8]", "n: int64[] in 1..8", batch=(1, 4))
class SliceByItem(nn.Module):
    def forward(self, x, n):
        return x[:, : n.item()].sum(-1)


@idiom("x: float32[batch, time, 4]", "sizes: int64[3] in 1..5", batch=(1, 3), time=(15, 20))
class SplitByTolist(nn.Module):
    def forward(self, x, sizes):
        a, b, c = sizes.tolist()
        return torch.stack([x[:, :a].sum(1), x[:, a : a + b].sum(1), x[:, a + b : a + b + c].sum(1)], 1)


@idiom("logits: float32[batch, time, 5]", batch=(1, 3), time=(2, 12))
class ViterbiForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.transition = nn.Parameter(torch.randn(5, 5))

    def forward(self, logits):
        score = logits[:, 0]
        for t in range(1, logits.shape[1]):
            score = (score.unsqueeze(2) + self.transition).max(1).values + logits[:, t]
        return score.max(-1)


@idiom("logits: float32[batch, time, 5]", "mask: bool[batch, time] = keep-right-padded", batch=(1, 3), time=(2, 12))
class CrfLogPartition(nn.Module):
    def __init__(self):
        super().__init__()
        self.transition = nn.Parameter(torch.randn(5, 5))

    def forward(self, logits, mask):
        score = logits[:, 0]
        for t in range(1, logits.size(1)):
            step = torch.logsumexp(score.unsqueeze(2) + self.transition, 1) + logits[:, t]
            score = torch.where(mask[:, t].unsqueeze(1), step, score)
        return torch.logsumexp(score, -1)


@idiom("start: float32[batch, 4]", batch=(1, 4))
class FixedEulerSteps(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, start):
        for _ in range(10):
            start = start + 0.1 * self.field(start)
        return start


@idiom("x: float32[batch, time, 6]", batch=(1, 3), time=(1, 20))
class SelectiveScan(nn.Module):
    """A state-space layer as Mamba's reference code writes it."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(-torch.rand(6, 4))
        self.b, self.c, self.dt = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(6, 6)

    def forward(self, x):
        dt = F.softplus(self.dt(x))
        da = torch.exp(dt.unsqueeze(-1) * self.a)
        dbx = dt.unsqueeze(-1) * self.b(x).unsqueeze(2) * x.unsqueeze(-1)
        state = x.new_zeros(x.shape[0], 6, 4)
        ys = []
        for i in range(x.shape[1]):
            state = da[:, i] * state + dbx[:, i]
            ys.append(torch.einsum("bdn,bn->bd", state, self.c(x)[:, i]))
        return torch.stack(ys, 1)


@idiom("x: float32[batch, time, 6]", batch=(1, 3), time=(1, 20))
class LinearAttentionState(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 18)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.zeros(x.shape[0], 6, 6)
        norm = torch.zeros(x.shape[0], 6)
        out = []
        for t in range(x.shape[1]):
            state = state + k[:, t].unsqueeze(2) * v[:, t].unsqueeze(1)
            norm = norm + k[:, t]
            out.append(torch.einsum("bi,bij->bj", q[:, t], state) / (q[:, t] * norm).sum(-1, keepdim=True))
        return torch.stack(out, 1)
