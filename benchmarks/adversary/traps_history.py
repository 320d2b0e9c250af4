"""Traps of history, clocks, seeds and globals: answers that are not a function of the inputs, or barely are."""

from __future__ import annotations

import functools
import math
import random

import numpy as np
import torch
from case import trap
from torch import nn
from traps_masks import BATCH, SEQ, X6, features

FRAMES = "x: float32[batch, seq, 4]"
HISTORY = "the answer depends on earlier calls"
CALLS = {"total": 0}


def lengths(*sizes):
    return lambda: [{"x": torch.randn(2, n, 4)} for n in sizes]


@trap(
    "history",
    "rotary positions with a base that grows with the longest sequence seen (dynamic NTK)",
    FRAMES,
    bounds={"batch": (1, 2), "seq": (2, 40)},
    probes=lengths(6, 40, 6),
    sequence=True,
    no_right_file="after a long sequence short ones are answered differently",
)
class DynamicNtk(nn.Module):
    def __init__(self):
        super().__init__()
        self.longest = 16
        self.frequency = 1.0 / 10000 ** (torch.arange(0, 4, 2).float() / 4)

    def forward(self, x):
        n = x.shape[1]
        if n > self.longest:
            self.longest = n
            base = 10000 * (2 * n / 16 - 1) ** 2
            self.frequency = 1.0 / base ** (torch.arange(0, 4, 2).float() / 4)
        angle = torch.arange(n)[:, None] * self.frequency
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)


@trap("history", "a count in a global dict", X6, bounds=BATCH, probes=features(1.0, 1.0, 1.0, 1.0, 1.0), sequence=True)
class GlobalCount(nn.Module):
    def forward(self, x):
        CALLS["total"] += 1
        return x * (1.0 if CALLS["total"] < 1000 else 0.5)


def make_counter():
    count = 0

    def advance():
        nonlocal count
        count += 1
        return count

    return advance


@trap(
    "history",
    "a closure counts the calls",
    X6,
    bounds=BATCH,
    probes=features(1.0, 1.0, 1.0),
    sequence=True,
    no_right_file=HISTORY,
)
class ClosureCounts(nn.Module):
    def __init__(self):
        super().__init__()
        self.advance = make_counter()

    def forward(self, x):
        return x + 0.5 ** self.advance()


class Meter:
    def __init__(self):
        self.peak = 0.0

    def update(self, value):
        self.peak = max(self.peak, value)
        return self.peak


@trap(
    "history",
    "a plain object keeps the highest peak so far",
    X6,
    bounds=BATCH,
    probes=features(1.0, 50.0, 1.0),
    sequence=True,
    no_right_file=HISTORY,
)
class PeakMeter(nn.Module):
    def __init__(self):
        super().__init__()
        self.meter = Meter()

    def forward(self, x):
        return x / (self.meter.update(float(x.abs().max())) + 1e-3)


@trap(
    "history",
    "a deque of the last frames",
    X6,
    bounds={"batch": (1, 1)},
    probes=lambda: [{"x": torch.randn(1, 6)} for _ in range(4)],
    sequence=True,
    no_right_file=HISTORY,
)
class LastFrames(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = []

    def forward(self, x):
        self.frames = [*self.frames[-2:], x]
        return sum(self.frames) / len(self.frames)


@trap(
    "history",
    "a smoothed level changes only when it is loud",
    X6,
    bounds=BATCH,
    probes=features(1.0, 90.0, 1.0),
    sequence=True,
    no_right_file=HISTORY,
)
class SmoothedWhenLoud(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.ones(()))

    def forward(self, x):
        peak = x.abs().max()
        self.level.copy_(torch.where(peak > 60, 0.5 * self.level + 0.5 * peak, self.level))
        return x / self.level


@trap(
    "history",
    "a mask of the last size is kept although it belongs to another size of heads",
    FRAMES,
    bounds=SEQ,
    probes=lengths(6, 2, 12, 6),
    sequence=True,
)
class KeepsLargestMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = torch.zeros(0, 0)

    def forward(self, x):
        n = x.shape[1]
        if self.mask.shape[0] < n:
            self.mask = torch.full((n, n), -1e4).triu(1)
        return ((x @ x.transpose(1, 2)) + self.mask[:n, :n]).softmax(-1) @ x


@functools.lru_cache
def make_window(size):
    return torch.hann_window(size + 2, periodic=False)[1:-1]


@trap(
    "history",
    "a cached function of the size",
    "x: float32[batch, seq]",
    bounds=SEQ,
    probes=lambda: [{"x": torch.randn(2, n)} for n in (6, 2, 12, 6)],
    sequence=True,
)
class CachedWindow(nn.Module):
    def forward(self, x):
        return x * make_window(x.shape[1])


RANDOM = "two calls on one input differ"


@trap(
    "seeds",
    "noise from a fixed seed is a constant of the size",
    "x: float32[batch, seq]",
    bounds=SEQ,
    probes=lambda: [{"x": torch.randn(2, n)} for n in (6, 2, 12)],
)
class SeededNoise(nn.Module):
    def forward(self, x):
        torch.manual_seed(3)
        return x + 0.1 * torch.randn_like(x)


@trap(
    "seeds",
    "a generator with a fixed seed",
    X6,
    bounds=BATCH,
    probes=features(1.0, 2.0, 0.1),
)
class SeededGenerator(nn.Module):
    def forward(self, x):
        generator = torch.Generator().manual_seed(5)
        return x * torch.randn(6, generator=generator)


@trap(
    "seeds",
    "numpy's noise from a fixed seed",
    "x: float32[batch, seq]",
    bounds=SEQ,
    probes=lambda: [{"x": torch.randn(2, n)} for n in (6, 2, 12)],
)
class NumpySeeded(nn.Module):
    def forward(self, x):
        noise = np.random.RandomState(0).randn(x.shape[1]).astype(np.float32)
        return x + torch.from_numpy(noise)


@trap("seeds", "numpy's noise without a seed", X6, bounds=BATCH, probes=features(1.0, 1.0), no_right_file=RANDOM)
class NumpyNoise(nn.Module):
    def forward(self, x):
        return x + 0.01 * torch.from_numpy(np.random.default_rng().standard_normal(6).astype(np.float32))


@trap("seeds", "Python's random chooses a flip", X6, bounds=BATCH, probes=features(1.0, 1.0), no_right_file=RANDOM)
class RandomFlip(nn.Module):
    def forward(self, x):
        if random.random() < 0.5:
            return x.flip(-1)
        return x


@trap(
    "seeds",
    "one call in a thousand drops a column",
    X6,
    bounds=BATCH,
    probes=features(1.0, 1.0),
    no_right_file=RANDOM,
)
class RareDrop(nn.Module):
    def forward(self, x):
        keep = (torch.rand(6) > 1e-3).float()
        return x * keep


@trap(
    "seeds",
    "noise is added to loud signals only, from numpy",
    "x: float32[batch, 6] in 0..1",
    bounds=BATCH,
    probes=lambda: [{"x": torch.rand(2, 6)}, {"x": 0.995 + 0.005 * torch.rand(2, 6)}],
    no_right_file=RANDOM,
)
class DitherWhite(nn.Module):
    def forward(self, x):
        if float(x.min()) > 0.99:
            return x - 0.01 * torch.from_numpy(np.random.default_rng().random(6).astype(np.float32))
        return x


@trap(
    "seeds",
    "Gumbel noise is drawn in training only; argmax decides in eval",
    X6,
    bounds=BATCH,
    probes=features(1.0, 3.0),
    training=True,
)
class GumbelInTraining(nn.Module):
    def forward(self, x):
        if self.training:
            x = x - torch.log(-torch.log(torch.rand_like(x)))
        return nn.functional.one_hot(x.argmax(-1), 6)


@trap(
    "seeds",
    "a random permutation is undone again",
    "x: float32[batch, seq, 4]",
    bounds=SEQ,
    probes=lengths(6, 2, 12),
)
class PermutedAndBack(nn.Module):
    def forward(self, x):
        order = torch.randperm(x.shape[1])
        return torch.tanh(x[:, order])[:, order.argsort()]


@trap(
    "history",
    "the warm-up of a schedule depends on a step counter that forward does not change",
    X6,
    bounds=BATCH,
    probes=features(1.0, 3.0),
    sequence=True,
)
class WarmUpStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.tensor(250))

    def forward(self, x):
        scale = min(1.0, int(self.step) / 1000)
        return x * scale * math.sqrt(2)
