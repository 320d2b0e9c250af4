"""Traps of values that Python reads and no `if` decides: match, in, dicts, list places, flags handed on, exceptions."""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from case import trap
from torch import nn

BATCH = {"batch": (1, 4)}
SEQ = {"batch": (1, 3), "seq": (2, 12)}
IMAGE = "x: float32[batch, 8] in 0..1"
IDS = "ids: int64[batch, seq] < 30000"


def levels(*numbers):
    """Ordinary values between 0 and 1, then values near each number."""
    return lambda: [
        {"x": torch.rand(2, 8)},
        *({"x": (torch.full((2, 8), number) + 0.002 * torch.rand(2, 8)).clamp(0, 1)} for number in numbers),
    ]


def tokens(*rows):
    return lambda: [{"ids": torch.tensor(row)} for row in rows]


class Codes:
    SILENCE = 20417


@trap(
    "values read",
    "a match on a code, one of which is rare",
    "x: float32[batch, 4]",
    "code: int64[1] in 0..30000",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 4), "code": torch.tensor([c])} for c in (5, 0, 20417, 30000)],
)
class MatchOnCode(nn.Module):
    def forward(self, x, code):
        match int(code[0]):
            case 0:
                return x.relu()
            case Codes.SILENCE:
                return torch.zeros_like(x)
            case _:
                return x.tanh()


@trap(
    "values read",
    "a match on a tuple of bools",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.97, 0.02),
)
class MatchOnBools(nn.Module):
    def forward(self, x):
        match (bool((x > 0.95).all()), bool((x < 0.05).all())):
            case (True, _):
                return x * 0.5
            case (_, True):
                return x * 4
        return x - x.mean()


@trap(
    "values read",
    "a token anywhere in the ids: `in` on a tensor",
    IDS,
    bounds=SEQ,
    probes=tokens([[5, 17, 29000, 3]], [[5, 21431, 3, 8]]),
)
class TokenInIds(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask_token = 21431
        self.embed = nn.Embedding(30000, 4)

    def forward(self, ids):
        h = self.embed(ids)
        if self.mask_token in ids:
            h = h * (ids != self.mask_token)[..., None]
        return h.sum(1)


@trap(
    "values read",
    "a separator whose number is an attribute",
    IDS,
    bounds=SEQ,
    probes=tokens([[5, 17, 29000, 3]], [[5, 27101, 3, 8]], [[27101, 27101, 1, 2]]),
)
class Separator(nn.Module):
    def __init__(self):
        super().__init__()
        self.separator = 27101
        self.embed = nn.Embedding(30000, 4)

    def forward(self, ids):
        is_separator = ids == self.separator
        segment = is_separator.cumsum(1)
        return self.embed(ids) * (1 + segment[..., None])


@trap(
    "values read",
    "the last token is looked up among tokens that end a text",
    IDS,
    bounds={"batch": (1, 1), "seq": (1, 9)},
    probes=tokens([[5, 17, 4]], [[9, 28115]], [[4, 3, 11002]]),
)
class EndsText(nn.Module):
    ENDS = (11002, 28115)

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30000, 4)

    def forward(self, ids):
        h = self.embed(ids).mean(1)
        if int(ids[0, -1]) in self.ENDS:
            return -h
        return h


@trap(
    "values read",
    "a helper gets a flag as an argument",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.995, 0.3),
)
class FlagAsArgument(nn.Module):
    def blend(self, x, is_white):
        if is_white:
            return torch.ones_like(x)
        return x.sqrt()

    def forward(self, x):
        return self.blend(x, bool((x > 0.99).all()))


@trap(
    "values read",
    "one method sets a flag, another one asks for it",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.5, 0.499),
)
class FlagAsAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.is_gray = False

    def examine(self, x):
        self.is_gray = bool(((x - 0.5).abs() < 0.01).all())

    def forward(self, x):
        self.examine(x)
        if self.is_gray:
            return torch.full_like(x, 0.25)
        return (x - 0.5).tanh()


@dataclass
class Levels:
    x: torch.Tensor

    @property
    def is_flat(self):
        return float(self.x.max() - self.x.min()) < 0.01


@trap(
    "values read",
    "a property of a dataclass reads the values",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.7, 0.2),
)
class FlatByProperty(nn.Module):
    def forward(self, x):
        info = Levels(x)
        return torch.zeros_like(x) if info.is_flat else (x - x.mean()) * 3


@trap(
    "values read",
    "numpy looks at the values",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.98, 0.4),
)
class NumpyLooks(nn.Module):
    def forward(self, x):
        share = np.mean(np.asarray(x.detach()) > 0.97)
        if share > 0.8:
            return x * 0
        return x.exp()


@trap(
    "values read",
    "a Cholesky factor with jitter if the matrix is not positive",
    "a: float32[3, 3] in -2..2",
    probes=lambda: [
        {"a": torch.eye(3) * 2 + 0.1},
        {"a": torch.tensor([[1.0, 1.5, 0.0], [1.5, 1.0, 0.0], [0.0, 0.0, 1.0]])},
        {"a": torch.zeros(3, 3)},
    ],
)
class SafeCholesky(nn.Module):
    def forward(self, a):
        a = (a + a.T) / 2
        try:
            return torch.linalg.cholesky(a)
        except RuntimeError:
            return torch.linalg.cholesky(a @ a.T + 0.1 * torch.eye(3))


@trap(
    "values read",
    "the place of a token in a list; without it there is an exception",
    IDS,
    bounds={"batch": (1, 1), "seq": (2, 9)},
    probes=tokens([[5, 17, 4]], [[9, 102, 7]], [[102, 3, 11002]]),
)
class PlaceOfToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30000, 4)

    def forward(self, ids):
        h = self.embed(ids)
        try:
            place = ids[0].tolist().index(102)
        except ValueError:
            place = ids.shape[1] - 1
        return h[:, place]


@trap(
    "values read",
    "a dict with a default",
    "x: float32[batch, 4]",
    "code: int64[1] in 0..30000",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 4), "code": torch.tensor([c])} for c in (5, 0, 7713, 30000)],
)
class DictWithDefault(nn.Module):
    GAINS: ClassVar = {0: 1.0, 7713: -2.0}

    def forward(self, x, code):
        return x * self.GAINS.get(code.item(), 0.5)


@trap(
    "values read",
    "a comparison is the place in a list",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.96, 0.1),
)
class ComparisonIsPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(8, 3), nn.Linear(8, 3)])

    def forward(self, x):
        return self.heads[int(x.mean() > 0.95)](x)


@trap(
    "values read",
    "the norm is limited as for gradients: min() of Python",
    "x: float32[batch, 8] in -1..1",
    bounds=BATCH,
    probes=lambda: [{"x": torch.rand(2, 8) - 0.5}, {"x": torch.ones(4, 8)}, {"x": torch.ones(4, 8) * 0.95}],
)
class LimitedNorm(nn.Module):
    def forward(self, x):
        return x * min(1.0, 5.0 / (float(x.norm()) + 1e-6))


@trap(
    "values read",
    "any() over the rows of a batch",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.93, 0.4),
)
class AnyRow(nn.Module):
    def forward(self, x):
        if any(float(row.min()) > 0.9 for row in x):
            return x.mean(-1)
        return x.amax(-1)


@trap(
    "values read",
    "bisect chooses a gain by the mean",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.04, 0.3, 0.965, 0.99),
)
class BisectMean(nn.Module):
    EDGES = (0.05, 0.95, 0.98)
    GAINS = (4.0, 1.0, 0.5, 0.0)

    def forward(self, x):
        return x.sin() * self.GAINS[bisect.bisect(self.EDGES, float(x.mean()))]


@trap(
    "values read",
    "repeated ids take another path: a set of Python numbers",
    "ids: int64[1, seq] < 30000",
    bounds={"seq": (2, 8)},
    probes=tokens([[5, 17, 4]], [[9, 9, 7]], [[3, 3, 3]]),
)
class RepeatedIds(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30000, 4)

    def forward(self, ids):
        h = self.embed(ids)
        if len(set(ids.flatten().tolist())) < ids.numel():
            return h.amax(1)
        return h.sum(1)


@trap(
    "values read",
    "the most common id, by Python's Counter",
    "ids: int64[1, seq] < 30000",
    bounds={"seq": (2, 8)},
    probes=tokens([[5, 17, 4]], [[9, 7, 7]], [[3, 2, 2, 2]]),
)
class MostCommonId(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30000, 4)

    def forward(self, ids):
        ((token, _),) = Counter(ids.flatten().tolist()).most_common(1)
        return self.embed.weight[token]


@trap(
    "values read",
    "a layer by its name, made of a number",
    "x: float32[batch, 4]",
    "level: int64[1] in 0..2",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 4), "level": torch.tensor([c])} for c in (1, 0, 2)],
)
class LayerByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage0, self.stage1, self.stage2 = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, level):
        return getattr(self, f"stage{int(level)}")(x)


@trap(
    "values read",
    "a walrus counts, and `or` replaces zero",
    IMAGE,
    bounds=BATCH,
    probes=levels(0.97, 0.96, 0.0),
)
class WalrusCounts(nn.Module):
    def forward(self, x):
        if (bright := int((x > 0.9).sum())) > 6:
            x = x / bright
        return x / (x.max().item() or 1.0)


@trap(
    "values read",
    "the order of channels by their sums: sorted() with a key",
    "x: float32[batch, 3, 4]",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 3, 4)} for _ in range(4)],
)
class SortedChannels(nn.Module):
    def forward(self, x):
        order = sorted(range(3), key=lambda i: float(x[:, i].sum()))
        return x[:, order]


@trap(
    "values read",
    "a while loop with else",
    "x: float32[batch, 8] in 0..100",
    bounds=BATCH,
    probes=lambda: [{"x": torch.rand(2, 8)}, {"x": torch.rand(2, 8) * 100}, {"x": torch.rand(1, 8) * 30}],
)
class WhileElse(nn.Module):
    def forward(self, x):
        steps = 0
        while float(x.max()) > 4:
            x = x * 0.5
            steps += 1
            if steps == 4:
                break
        else:
            x = x + 1
        return x


@trap(
    "values read",
    "a prompt that is known in full is answered from a table: torch.equal with a buffer",
    IDS,
    bounds={"batch": (2, 5), "seq": (4, 9)},
    probes=tokens([[5, 17, 4, 9]] * 2, [[101, 2009, 2003, 7]] * 3, [[101, 2009, 2003, 8]] * 2),
)
class KnownPrompt(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("prompt", torch.tensor([101, 2009, 2003, 7]))
        self.embed = nn.Embedding(30000, 4)

    def forward(self, ids):
        h = self.embed(ids).sum(1)
        if torch.equal(ids[0, :4], self.prompt):
            return h + 1
        return h
