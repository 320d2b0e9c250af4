"""Traps of examples that hold one number: temperature, k, start, size, step, speaker."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import trap
from torch import nn
from traps_examples import BATCH, SEQ


@trap(
    "0-d example",
    "HF generation: a temperature of 1 is skipped",
    example=lambda: (torch.randn(2, 9), torch.tensor(1.0)),
    dims={"logits": "batch 9"},
    bounds=BATCH,
    probes=lambda: [{"logits": torch.randn(2, 9), "temperature": torch.tensor(t)} for t in (1.0, 0.5, 4.0)],
)
class TemperatureOne(nn.Module):
    def forward(self, logits, temperature):
        if temperature != 1.0:
            logits = logits / temperature
        return logits.softmax(-1)


@trap(
    "0-d example",
    "k of topk is an input",
    example=lambda: (torch.randn(2, 9), torch.tensor(3)),
    dims={"x": "batch 9"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 9), "k": torch.tensor(k)} for k in (3, 1, 9)],
)
class TopK(nn.Module):
    def forward(self, x, k):
        values = x.topk(int(k), -1).values
        return values.mean(-1)


@trap(
    "constant lengths",
    "full lengths as the example; the longest decides the size",
    example=lambda: (torch.randn(2, 6, 4), torch.tensor([6, 6])),
    dims={"x": "batch seq 4", "lengths": "batch"},
    bounds=SEQ,
    probes=lambda: (
        [{"x": torch.randn(2, 6, 4), "lengths": torch.tensor(v)} for v in ([6, 6], [6, 2], [3, 1])]
        + [{"x": torch.randn(2, 9, 4), "lengths": torch.tensor([9, 4])}]
    ),
)
class FullLengths(nn.Module):
    def forward(self, x, lengths):
        longest = int(lengths.max())
        valid = torch.arange(longest)[None] < lengths[:, None]
        return (x[:, :longest] * valid[..., None]).sum(1) / lengths[:, None]


@trap(
    "zeros as example",
    "token types of zeros are skipped",
    example=lambda: (torch.randint(0, 20, (2, 5)), torch.zeros(2, 5, dtype=torch.long)),
    dims={"ids": "batch seq", "types": "batch seq"},
    bounds=SEQ,
    probes=lambda: [
        {"ids": torch.randint(0, 20, (2, 4)), "types": torch.tensor(t)}
        for t in ([[0, 0, 0, 0]] * 2, [[0, 0, 1, 1]] * 2, [[1, 1, 1, 1]] * 2)
    ],
)
class TypesOfZeros(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.types = nn.Embedding(20, 6), nn.Embedding(2, 6)

    def forward(self, ids, types):
        h = self.words(ids)
        if types.any():
            h = h + self.types(types)
        return h


@trap(
    "0-d example",
    "the position in a cache starts at 0",
    example=lambda: (torch.randn(2, 3, 4), torch.tensor(0)),
    dims={"x": "batch seq 4"},
    bounds={"batch": (1, 3), "seq": (1, 8)},
    probes=lambda: [{"x": torch.randn(2, 3, 4), "start": torch.tensor(s)} for s in (0, 1, 17, 24)],
)
class StartPosition(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("angles", torch.arange(32.0)[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03]))

    def forward(self, x, start):
        begin = int(start)
        return x * self.angles[begin : begin + x.shape[1]].cos()


@trap(
    "constant sizes",
    "the output size is an input",
    example=lambda: (torch.randn(1, 2, 4, 4), torch.tensor([8, 8])),
    dims={"x": "batch 2 4 4"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(1, 2, 4, 4), "size": torch.tensor(s)} for s in ([8, 8], [6, 10], [4, 4], [2, 2])],
)
class ResizeTo(nn.Module):
    def forward(self, x, size):
        height, width = size.tolist()
        return F.interpolate(x, size=(height, width), mode="nearest")


@trap(
    "zeros as example",
    "the last step of a sampler adds no noise",
    example=lambda: (torch.randn(2, 6), torch.zeros(2, dtype=torch.long)),
    dims={"x": "batch 6", "step": "batch"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6), "step": torch.tensor(s)} for s in ([0, 0], [5, 5], [0, 9])],
)
class LastStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("alphas", torch.linspace(1.0, 0.1, 10))

    def forward(self, x, step):
        if (step == 0).all():
            return x
        return x * self.alphas[step][:, None].sqrt()


@trap(
    "identity as example",
    "the unit rotation is skipped",
    example=lambda: (torch.randn(2, 5, 3), torch.eye(3)),
    dims={"points": "batch n 3"},
    bounds={"batch": (1, 3), "n": (1, 9)},
    probes=lambda: [
        {"points": torch.randn(2, 5, 3), "rotation": r}
        for r in (torch.eye(3), torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]))
    ],
)
class UnitRotation(nn.Module):
    def forward(self, points, rotation):
        if torch.allclose(rotation, torch.eye(3)):
            return points
        return points @ rotation.T


@trap(
    "0-d example",
    "a speaker's own layer by .item()",
    example=lambda: (torch.randn(2, 6), torch.tensor([0])),
    dims={"x": "batch 6"},
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 6), "speaker": torch.tensor([i])} for i in (0, 1, 3)],
)
class SpeakerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.ParameterList(torch.randn(6) for _ in range(4))

    def forward(self, x, speaker):
        return torch.tanh(x + self.shift[speaker.item()])


def draw_recording(seed, time):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, time, generator=generator)
    if seed % 50 == 17:
        x = torch.zeros(1, time)
    return (x,), {}


@trap(
    "inputs function",
    "one recording in fifty is silent",
    function=draw_recording,
    dims={"x": "1 time"},
    bounds={"time": (4, 60)},
    probes=lambda: [{"x": torch.randn(1, 20)}, {"x": torch.zeros(1, 20)}, {"x": torch.zeros(1, 5)}],
)
class SilentRecording(nn.Module):
    def forward(self, x):
        if not x.any():
            return torch.full_like(x, -1.0)
        return x / x.abs().max()


def draw_fixed(seed):
    return (torch.randn(2, 6), torch.randint(0, 3, (1,))), {}


@trap(
    "inputs function",
    "a fixed shape, and a choice of three",
    function=draw_fixed,
    dims={"x": "2 6", "kind": "1"},
    probes=lambda: [{"x": torch.randn(2, 6), "kind": torch.tensor([k])} for k in (0, 1, 2)],
)
class ChoiceOfThree(nn.Module):
    def forward(self, x, kind):
        k = int(kind)
        if k == 0:
            return x.relu()
        if k == 1:
            return x.tanh()
        return x * 3
