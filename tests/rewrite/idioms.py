"""Loops and choices as people write them, each with inputs to run it on. Nothing here knows of any rewrite."""
# ruff: noqa: B905, C4, SIM  # the idioms are kept as their authors would write them

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Idiom:
    """`inputs(b, t)` makes arguments with a batch of b and a length of t; `dims` are their dynamic axes.

    `routes` are those whose file is checked in the runtime: one for most, to keep the tests short, both for the idioms
    of the systems this is made for. If the other route refuses, there is a separate test of its reason.
    """

    model: type[nn.Module]
    inputs: Callable[[int, int], Tensors]
    dims: tuple[tuple[int, ...], ...]
    routes: tuple[str, ...] = ("export", "trace")

    @property
    def name(self) -> str:
        return self.model.__name__


def _x(b: int, t: int) -> Tensors:
    return (torch.randn(b, t, 3),)


def _ids(b: int, t: int) -> Tensors:
    return torch.randn(b, t, 3), torch.randint(0, 3, (b, t))


def _id(b: int, t: int) -> Tensors:
    return torch.randn(b, t, 3), torch.randint(0, 3, (b,))


BT = ((0, 1),)
NETS = ((0, 1), (0, 1))
ONE = ((0, 1), (0,))


def _nets() -> nn.ModuleList:
    return nn.ModuleList([nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU()) for _ in range(3)])


# Family A: features spread over samples, with whole-number arithmetic on the index.


class SpreadBySlices(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.interval = 9
        self.head = np.floor(self.interval / 2.0).astype(int)
        self.tail = self.interval - self.head

    def spread(self, out, feat, frame_len):
        def clip(x, top):
            if x > top:
                return top
            elif x < 0:
                return 0
            else:
                return x

        steps = np.ceil((frame_len - self.head) / self.interval).astype(int) + 1
        for i in range(steps):
            s = clip(i * self.interval - self.head, frame_len)
            e = clip(i * self.interval + self.tail, frame_len)
            idx = clip(i, feat.shape[1] - 1)
            out[:, s:e, :] += feat[:, idx : idx + 1, :]
        return out

    def forward(self, x):
        frame_len = x.shape[1] - self.interval
        feat = torch.tanh(x[:, ::9, :])
        zero = torch.zeros_like(x[:, self.interval :, :])
        return self.spread(zero.clone(), feat, frame_len) + self.spread(zero.clone(), feat * 2, frame_len)


class SpreadByTensorLength(nn.Module):
    def forward(self, x):
        frame_len = torch.tensor(x.shape[1] * 2)
        n = int(frame_len.item())
        feat = x * 2
        out = torch.zeros(x.shape[0], n, 3)
        for j in range(n):
            out[:, j] = feat[:, min((j + 4) // 9, feat.shape[1] - 1)]
        return out


class SpreadByGivenLength(nn.Module):
    def forward(self, x, frame_len):
        n = int(frame_len.item())
        out = torch.zeros(x.shape[0], n, 3)
        for j in range(n):
            out[:, j] = x[:, min((j + 4) // 9, x.shape[1] - 1)]
        return out


class SpreadByNestedLoop(nn.Module):
    def forward(self, x):
        clip = lambda v, top: max(0, min(v, top))  # noqa: E731
        n = x.shape[1] * 3
        feat = x + 1
        out = torch.zeros(x.shape[0], n, 3)
        for i in range(feat.shape[1]):
            s = clip(i * 3 - 1, n)
            e = clip(i * 3 + 2, n)
            for j in range(s, e):
                out[:, j, :] += feat[:, i, :]
        return out


class SpreadWithIf(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        n = x.size(1)
        for i in range(n):
            if i < 2:
                k = 0
            elif i % 2 == 0:
                k = i - 2
            else:
                k = n - 1
            out[:, i] = x[:, k] * (1.0 if i > 3 else 2.0)
        return out


def halfway(i, n):
    return min(math.ceil(i / 2), n - 1)


class SpreadByModuleFunction(nn.Module):
    def pick(self, x, i):
        return x[:, halfway(i, x.shape[1])]

    def forward(self, x):
        rows = []
        for i in range(len(x[0])):
            rows.append(self.pick(x, i))
        return torch.stack(rows, dim=1)


# Family B: a net chosen per sample.


class CalibrationByPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calibration = _nets()

    def forward(self, emb, receiver_ids):
        B, N, _ = emb.shape
        outs = []
        for b in range(B):
            for n in range(N):
                rid = receiver_ids[b, n].item()
                outs.append(self.calibration[rid](emb[b, n]))
        return torch.stack(outs).view(B, N, -1)


class CalibrationByRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nets = _nets()

    def forward(self, x, ids):
        out = torch.zeros(x.shape[0], x.shape[1], 4)
        for b in range(x.shape[0]):
            out[b] = self.nets[ids[b].item()](x[b : b + 1])
        return out


class CalibrationByComprehension(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nets = _nets()

    def forward(self, x, ids):
        return torch.stack([self.nets[int(ids[b])](x[b]) for b in range(x.size(0))])


class CalibrationByReceiver(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nets = _nets()

    def forward(self, emb, receiver_ids):
        batch, receivers = receiver_ids.shape
        columns = []
        for n in range(receivers):
            column = []
            for b in range(batch):
                column.append(self.nets[receiver_ids[b, n].item()](emb[b, n, :]))
            columns.append(torch.stack(column, dim=0))
        return torch.stack(columns, dim=1)


class CalibrationFlattened(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nets = _nets()

    def forward(self, emb, receiver_ids):
        flat, ids = emb.reshape(-1, 3), receiver_ids.reshape(-1)
        rows = [self.nets[int(i)](row) for row, i in zip(flat, ids)]
        return torch.stack(rows).reshape(emb.shape[0], emb.shape[1], -1)


class CalibrationByList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nets = _nets()

    def forward(self, x, ids):
        outs = []
        for b, rid in enumerate(ids):
            outs.append(self.nets[rid.item()](x[b].unsqueeze(0)))
        return torch.cat(outs, dim=0)


class HeadForAll(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(3, 2) for _ in range(4)])

    def forward(self, x, which):
        k = int(which.item())
        return self.heads[k](x)


class HeadByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({"0": nn.Linear(3, 2), "1": nn.Linear(3, 2), "4": nn.Linear(3, 2)})

    def forward(self, x, which):
        return self.heads[str(which.item())](x)


# Family C: loops over sizes and rows, recurrences, accumulators.


class RowsOneByOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Linear(3, 3)

    def forward(self, x):
        rows = []
        for row in x:
            rows.append(torch.softmax(self.norm(row), dim=-1).mean(0))
        return torch.stack(rows)


class Enumerated(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        for i, row in enumerate(x):
            out[i] = row * (i + 1)
        return out


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(7, 4)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 4)
        hs = []
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(torch.cat([x[:, t], h], -1)))
            hs.append(h)
        return torch.stack(hs, 1), h


class RecurrenceFromNone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(3, 3)

    def forward(self, x):
        state = None
        for t in range(x.shape[1]):
            new = torch.tanh(self.cell(x[:, t]))
            state = new if state is None else 0.9 * state + new
        return state


class Backwards(nn.Module):
    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        outs = []
        for t in reversed(range(x.shape[1])):
            total = x[:, t] + 0.5 * total
            outs.append(total)
        return torch.stack(outs[::-1], dim=1)


class Accumulator(nn.Module):
    def forward(self, x):
        acc = 0
        for i in range(x.shape[1]):
            acc = acc + torch.relu(x[:, i])
        return acc / x.shape[1]


class AugmentedAccumulator(nn.Module):
    def forward(self, x):
        acc = torch.zeros(x.shape[0], 3)
        for i in range(1, x.shape[1]):
            acc += (x[:, i] - x[:, i - 1]).abs()
        return acc


class SlidingWindow(nn.Module):
    def forward(self, x):
        outs = []
        for i in range(x.shape[1] - 2):
            outs.append(x[:, i : i + 3].mean(dim=1))
        return torch.stack(outs, dim=1)


class Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hop, self.width = 2, 4

    def forward(self, x):
        frames = [
            x[:, i * self.hop : i * self.hop + self.width] for i in range((x.shape[1] - self.width) // self.hop + 1)
        ]
        return torch.stack(frames, dim=1).flatten(2)


class WritesInPlaceForCaller(nn.Module):
    def fill(self, out, x):
        for i in range(x.shape[1]):
            out[:, i] = x[:, i].cumsum(-1)

    def forward(self, x):
        out = torch.zeros_like(x)
        self.fill(out, x)
        return out + x


class SkipsSteps(nn.Module):
    def forward(self, x):
        out = x.clone()
        for i in range(x.shape[1]):
            if i % 3 == 1:
                continue
            out[:, i] = -x[:, i]
        return out


class PairsOfRows(nn.Module):
    def forward(self, x):
        n = x.shape[1]
        out = torch.zeros(x.shape[0], n, n)
        for i in range(n):
            for j in range(n):
                out[:, i, j] = (x[:, i] - x[:, j]).norm(dim=-1)
        return out


class SumOfGenerator(nn.Module):
    def forward(self, x):
        return sum(torch.sigmoid(x[:, i]) for i in range(x.shape[1]))


class TwoStates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(6, 12)

    def forward(self, x):
        h = x.new_zeros(x.size(0), 3)
        c = x.new_zeros(x.size(0), 3)
        outputs = []
        for t in range(x.size(1)):
            i, f, g, o = self.gates(torch.cat([x[:, t, :], h], dim=1)).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h.unsqueeze(1))
        return torch.cat(outputs, dim=1)


class ConvPerStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 3, padding=1)

    def forward(self, x):
        maps = []
        for t in range(x.shape[1]):
            maps.append(F.relu(self.conv(x[:, t].unsqueeze(1))).amax(-1))
        return torch.stack(maps, dim=1)


class NameOfTheOtherSide(nn.Module):
    """A name that the other side of an `if` binds is not bound before the loop."""

    def forward(self, x):
        if self.training:
            out = x
        else:
            rows = []
            for i in range(x.shape[1]):
                out = x[:, i] * 2
                rows.append(out + 1)
            out = torch.stack(rows, 1)
        return out


class Unbound(nn.Module):
    """Rows cut apart, by the method and by the function, for a cell that keeps the last state only."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        for step, back in zip(x.unbind(1), torch.unbind(x.flip(1), dim=1)):
            h = self.cell(step - back, h)
        return h


class LastValueKept(nn.Module):
    def forward(self, x):
        for t in range(x.shape[1]):
            y = x[:, t] * (t + 1)
        return y


def _length(b: int, t: int) -> Tensors:
    return torch.randn(b, t, 3), torch.tensor(t * 4 + 1)


def _which(b: int, t: int) -> Tensors:
    return torch.randn(b, t, 3), torch.tensor(t % 2)


def _long(b: int, t: int) -> Tensors:
    return (torch.randn(b, t * 5 + 11, 3),)


IDIOMS = (
    Idiom(SpreadBySlices, _long, BT),
    Idiom(SpreadByTensorLength, _x, BT),
    Idiom(SpreadByGivenLength, _length, ((0, 1), ())),
    Idiom(SpreadByNestedLoop, _x, BT, ("trace",)),
    Idiom(SpreadWithIf, _x, BT),
    Idiom(SpreadByModuleFunction, _x, BT, ("trace",)),
    Idiom(CalibrationByPair, _ids, NETS),
    Idiom(CalibrationByRow, _id, ONE),
    Idiom(CalibrationByComprehension, _id, ONE),
    Idiom(CalibrationByReceiver, _ids, NETS, ("trace",)),
    Idiom(CalibrationFlattened, _ids, NETS, ("trace",)),
    Idiom(CalibrationByList, _id, ONE, ("trace",)),
    Idiom(HeadForAll, _which, ((0, 1), ())),
    Idiom(HeadByName, _which, ((0, 1), ()), ("export",)),
    Idiom(RowsOneByOne, _x, BT, ("trace",)),
    Idiom(Enumerated, _x, BT, ("trace",)),
    Idiom(Recurrence, _x, BT),
    Idiom(RecurrenceFromNone, _x, BT, ("export",)),
    Idiom(Backwards, _x, BT, ("trace",)),
    Idiom(Accumulator, _x, BT),
    Idiom(AugmentedAccumulator, _x, BT, ("trace",)),
    Idiom(SlidingWindow, _x, BT),
    Idiom(Strided, _x, BT, ("trace",)),
    Idiom(WritesInPlaceForCaller, _x, BT),
    Idiom(SkipsSteps, _x, BT, ("trace",)),
    Idiom(PairsOfRows, _x, BT, ("trace",)),
    Idiom(SumOfGenerator, _x, BT, ("trace",)),
    Idiom(TwoStates, _x, BT, ("trace",)),
    Idiom(ConvPerStep, _x, BT, ("trace",)),
    Idiom(LastValueKept, _x, BT, ("export",)),
    Idiom(Unbound, _x, BT, ("export",)),
    Idiom(NameOfTheOtherSide, _x, BT, ("export",)),
)
