"""Traps of structure: outputs, arguments, memory, aliases, empty tensors, sizes by other words than shape."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from case import trap
from torch import nn

BATCH = {"batch": (1, 4)}
SEQ = {"batch": (1, 4), "seq": (1, 12)}
FRAMES = "x: float32[batch, seq, 4]"
X6 = "x: float32[batch, 6]"


def frames(*points):
    return lambda: [{"x": torch.randn(b, t, 4)} for b, t in points]


def features(*batches):
    return lambda: [{"x": torch.randn(b, 6)} for b in batches]


@trap(
    "memory", "more than 64 elements are thinned: numel()", FRAMES, bounds=SEQ, probes=frames((2, 5), (4, 4), (4, 12))
)
class NumelDecides(nn.Module):
    def forward(self, x):
        if x.numel() > 64:
            x = x[:, ::2]
        return x.mean(1)


@trap(
    "memory",
    "a transposed tensor is contiguous only for a batch of one",
    FRAMES,
    bounds=SEQ,
    probes=frames((2, 5), (1, 5), (1, 1), (3, 1)),
)
class ContiguousDecides(nn.Module):
    def forward(self, x):
        turned = x.transpose(0, 1)
        if turned.is_contiguous():
            return turned.sum(0)
        return turned.mean(0)


@trap(
    "memory",
    "the stride tells how many frames there are",
    FRAMES,
    bounds=SEQ,
    probes=frames((2, 5), (1, 1), (3, 12), (3, 11)),
)
class StrideDecides(nn.Module):
    def forward(self, x):
        if x.stride(0) >= 48:
            return x.amax(1)
        return x.mean(1)


@trap(
    "memory",
    "the bytes of a tensor decide",
    FRAMES,
    bounds=SEQ,
    probes=frames((2, 5), (4, 12), (1, 1)),
)
class BytesDecide(nn.Module):
    def forward(self, x):
        return x.amax(1) if x.nbytes > 600 else x.sum(1)


@trap(
    "sizes by other words",
    "the sizes are looked up in a set",
    FRAMES,
    bounds=SEQ,
    probes=frames((2, 5), (2, 8), (2, 12)),
)
class SizeInSet(nn.Module):
    FAST = (8, 12)

    def forward(self, x):
        if x.shape[1] in self.FAST:
            x = F.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2)
        return x.amax(1)


@trap(
    "sizes by other words",
    "a dict of layers by length, with a default",
    FRAMES,
    bounds=SEQ,
    probes=frames((2, 5), (2, 7), (2, 11)),
)
class LayerByLength(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"7": nn.Linear(4, 4), "other": nn.Linear(4, 4)})

    def forward(self, x):
        key = str(x.shape[1])
        return self.layers[key if key in self.layers else "other"](x)


@trap(
    "sizes by other words",
    "a match on the shape",
    FRAMES,
    bounds=SEQ,
    probes=frames((2, 5), (1, 5), (2, 9), (1, 9)),
)
class MatchOnShape(nn.Module):
    def forward(self, x):
        match tuple(x.shape):
            case (1, _, _):
                return x.sum(1)
            case (_, 9, _):
                return x.amin(1)
        return x.mean(1)


@trap(
    "sizes by other words",
    "the number of ones in the length's binary form",
    FRAMES,
    bounds=SEQ,
    probes=frames((2, 5), (2, 7), (2, 8), (2, 12)),
)
class BinaryForm(nn.Module):
    def forward(self, x):
        return x.mean(1) * bin(x.shape[1]).count("1")


@trap(
    "sizes by other words",
    "a frame rate by min(), max() and integer division of sizes",
    FRAMES,
    bounds={"batch": (1, 2), "seq": (1, 70)},
    probes=frames((2, 5), (2, 33), (2, 64), (2, 70), (1, 1)),
)
class StrideByLength(nn.Module):
    def forward(self, x):
        step = max(1, min(4, x.shape[1] // 16))
        return x[:, ::step].mean(1)


@trap(
    "sizes by other words",
    "a column or a row: broadcasting depends on a size of one",
    "a: float32[n, 1]",
    "b: float32[1, m]",
    bounds={"n": (1, 5), "m": (1, 5)},
    probes=lambda: [{"a": torch.randn(n, 1), "b": torch.randn(1, m)} for n, m in ((3, 4), (1, 4), (3, 1), (1, 1))],
)
class ColumnAndRow(nn.Module):
    def forward(self, a, b):
        return (a * b).squeeze(), (a.squeeze(1)[:, None] + b).sum()


@trap(
    "sizes by other words",
    "split into pieces of 5, of which the last is shorter",
    FRAMES,
    bounds={"batch": (1, 2), "seq": (1, 17)},
    probes=frames((2, 5), (2, 6), (2, 15), (2, 17), (1, 1)),
)
class SplitIntoFives(nn.Module):
    def forward(self, x):
        return torch.stack([part.mean(1) for part in x.split(5, 1)]).amax(0)


@trap(
    "empty tensors",
    "no boxes at all",
    "boxes: float32[n, 4]",
    bounds={"n": (0, 9)},
    probes=lambda: [{"boxes": torch.randn(n, 4)} for n in (3, 0, 1, 9)],
)
class NoBoxes(nn.Module):
    def forward(self, boxes):
        if boxes.shape[0] == 0:
            return torch.full((4,), -1.0), boxes.sum(0)
        return boxes.amax(0), boxes.sum(0)


@trap(
    "empty tensors",
    "the selected rows may be none",
    X6,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(3, 6)}, {"x": -torch.rand(2, 6)}, {"x": torch.rand(2, 6)}],
)
class SelectedRows(nn.Module):
    def forward(self, x):
        chosen = x[(x > 0).all(-1)]
        return chosen.sum(0), torch.tensor(chosen.shape[0])


@trap(
    "empty tensors",
    "a concatenation with an empty memory",
    "memory: float32[past, 4]",
    "x: float32[seq, 4]",
    bounds={"past": (0, 6), "seq": (1, 6)},
    probes=lambda: [{"memory": torch.randn(p, 4), "x": torch.randn(s, 4)} for p, s in ((2, 3), (0, 3), (0, 1), (6, 6))],
)
class EmptyMemory(nn.Module):
    def forward(self, memory, x):
        every = torch.cat([memory, x])
        return (x @ every.T).softmax(-1) @ every


@trap("aliases", "the input is changed in place", X6, bounds=BATCH, probes=features(2, 1, 4))
class ChangesItsInput(nn.Module):
    def forward(self, x):
        before = x.sum(-1)
        x.mul_(2)
        x[:, 0] = 0
        return x.sum(-1) - before


@trap("aliases", "an output is the input itself, another one a view", X6, bounds=BATCH, probes=features(2, 1, 4))
class ReturnsItsInput(nn.Module):
    def forward(self, x):
        return x, x[:, :3], x.T, x + 0


@trap(
    "aliases",
    "a slice is written, and the whole is read",
    FRAMES,
    bounds={"batch": (1, 3), "seq": (2, 9)},
    probes=frames((2, 5), (1, 2), (3, 9)),
)
class WritesASlice(nn.Module):
    def forward(self, x):
        h = x.clone()
        tail = h[:, 1:]
        tail += h[:, :-1].clone()
        h[:, ::2].neg_()
        return h


@trap(
    "aliases",
    "the same tensor for both inputs is compared by identity",
    "a: float32[batch, 6]",
    "b: float32[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"a": torch.randn(2, 6), "b": torch.randn(2, 6)}, {"a": torch.ones(2, 6), "b": torch.ones(2, 6)}],
)
class SameTensor(nn.Module):
    def forward(self, a, b):
        if torch.equal(a, b):
            return a * 2
        return a - b


@dataclass
class Result:
    scores: torch.Tensor
    extra: torch.Tensor | None = None


Pair = namedtuple("Pair", "first second")


@trap("outputs", "a dict with None, a number and a namedtuple", X6, bounds=BATCH, probes=features(2, 1, 4))
class DictOfKinds(nn.Module):
    def forward(self, x):
        return {"scores": x.relu(), "pair": Pair(x.sum(-1), x.T)}


@trap("outputs", "one output for each row of the batch", X6, bounds=BATCH, probes=features(2, 1, 4, 3))
class OutputForEachRow(nn.Module):
    def forward(self, x):
        return [row * 2 for row in x]


@trap("outputs", "long inputs have a second output", FRAMES, bounds=SEQ, probes=frames((2, 5), (2, 12), (2, 10)))
class SecondOutput(nn.Module):
    def forward(self, x):
        if x.shape[1] > 10:
            return x.mean(1), x[:, 10:].mean(1)
        return (x.mean(1),)


@trap(
    "outputs", "an output of the same name as an input, and a constant one", X6, bounds=BATCH, probes=features(2, 1, 4)
)
class ConstantOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("classes", torch.arange(6))

    def forward(self, x):
        return {"x": x.softmax(-1), "classes": self.classes}


@trap(
    "arguments",
    "an optional mask that is left out",
    X6,
    bounds=BATCH,
    probes=features(2, 1, 4),
)
class OptionalMask(nn.Module):
    def forward(self, x, mask=None, scale: float = 2.0):
        if mask is None:
            mask = torch.ones_like(x)
        return x * mask * scale


@trap(
    "arguments",
    "keyword arguments in another order than forward has",
    "b: float32[batch, 6]",
    "a: float32[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"a": torch.randn(n, 6), "b": torch.randn(n, 6)} for n in (2, 1, 4)],
)
class OtherOrder(nn.Module):
    def forward(self, a, b):
        return a - 2 * b


@trap(
    "arguments",
    "any keyword arguments, in the order of their names",
    "right: float32[batch, 6]",
    "left: float32[batch, 6]",
    bounds=BATCH,
    probes=lambda: [{"left": torch.randn(n, 6), "right": torch.randn(n, 6)} for n in (2, 1, 4)],
)
class AnyKeywords(nn.Module):
    def forward(self, **sides):
        first, second = (sides[name] for name in sorted(sides))
        return torch.cat([first, second * 2], -1)


@trap(
    "arguments",
    "a mode as a string and a list of two sizes in the call",
    example=lambda: {"x": torch.randn(2, 6), "mode": "mean", "sizes": [2, 3]},
    dims={"x": "batch 6"},
    bounds=BATCH,
    must_name="mode",
    probes=lambda: [{"x": torch.randn(b, 6), "mode": "mean", "sizes": [2, 3]} for b in (2, 1, 4)],
)
class ModeAsString(nn.Module):
    def forward(self, x, mode, sizes):
        parts = x[:, : sum(sizes)].split(sizes, -1)
        return torch.stack([part.mean(-1) if mode == "mean" else part.amax(-1) for part in parts], -1)


@trap(
    "two inputs that agree",
    "ids and their number: both must be the same size",
    "x: float32[batch, seq, 4]",
    "weights: float32[batch, seq] in 0..1",
    bounds=SEQ,
    probes=lambda: [
        {"x": torch.randn(2, 5, 4), "weights": torch.rand(2, 5)},
        {"x": torch.randn(2, 5, 4), "weights": torch.zeros(2, 5)},
        {"x": torch.randn(1, 1, 4), "weights": torch.ones(1, 1)},
    ],
)
class WeightedMean(nn.Module):
    def forward(self, x, weights):
        total = weights.sum(1, keepdim=True)
        if (total == 0).any():
            weights = weights + (total == 0)
            total = weights.sum(1, keepdim=True)
        return (x * weights[..., None]).sum(1) / total
