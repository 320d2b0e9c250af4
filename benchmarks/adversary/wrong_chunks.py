"""Wrong files with wrong padding, windows, frames or length-dependent scales."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import wrong
from torch import nn
from wrong_sizes import LINE, LONG, at_sizes, count


class Windows(nn.Module):
    def forward(self, x):
        pad = -x.shape[1] % 8
        y = F.pad(x, (0, 0, 0, pad))
        y = y.reshape(x.shape[0], -1, 8, 4)
        y = y - y.mean(2, keepdim=True)
        return y.reshape(x.shape[0], -1, 4)[:, : x.shape[1]]


def windows(padding=lambda n: -n % 8, mode="constant", value=0.0):
    def forward(self, x):
        n = x.shape[1]
        y = F.pad(x, (0, 0, 0, padding(n)), mode=mode, value=value)
        y = y.reshape(x.shape[0], -1, 8, 4)
        y = y - y.mean(2, keepdim=True)
        return y.reshape(x.shape[0], -1, 4)[:, :n]

    return forward


wrong(
    Windows,
    "padding and chunks",
    LINE,
    bounds=LONG,
    probes=at_sizes((2, 8), (2, 16), (1, 23), (2, 1)),
    route="trace",
    forwards={
        "padded with ones": windows(value=1.0),
        "padded by the example's amount": lambda self, x: torch.cat(
            [windows(lambda n: 6)(self, x[:, :10]), x[:, 10:] * 0.5], 1
        ),
        "mean over real rows only": lambda self, x: (
            windows()(self, x) + 0.0 * x - (windows()(self, torch.ones_like(x))) * x.mean(1, keepdim=True)
        ),
    },
)


class Frames(nn.Module):
    def forward(self, x):
        return x.unfold(1, 16, 4).mean(-1)


wrong(
    Frames,
    "padding and chunks",
    "x: float32[batch, time]",
    bounds={"batch": (1, 4), "time": (16, 200)},
    probes=lambda: [{"x": torch.randn(2, t)} for t in (50, 16, 17, 19, 20, 64, 199)],
    forwards={
        "the last frame is repeated from the first": lambda self, x: torch.cat(
            [(f := x.unfold(1, 16, 4).mean(-1))[:, :-1], f[:, :1]], 1
        ),
        "the last frame is an average of 15": lambda self, x: torch.cat(
            [(f := x.unfold(1, 16, 4))[:, :-1].mean(-1), f[:, -1:, :15].mean(-1)], 1
        ),
    },
)


class LogScaled(nn.Module):
    """Attention whose temperature grows beyond the training length."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        n = x.shape[1]
        scale = 0.5
        if n > 128:
            scale = scale * float(torch.log(torch.tensor(n)) / torch.log(torch.tensor(128.0)))
        return (self.q(x) @ self.k(x).transpose(1, 2) * scale).softmax(-1) @ x


wrong(
    LogScaled,
    "wrong at some sizes",
    LINE,
    bounds={"batch": (1, 3), "time": (1, 300)},
    probes=lambda: [{"x": torch.randn(2, t, 4) * 3} for t in (20, 128, 129, 200, 300)],
    forwards={
        "never scaled": lambda self, x: (self.q(x) @ self.k(x).transpose(1, 2) * 0.5).softmax(-1) @ x,
        "scaled at short lengths too": lambda self, x: (
            (
                self.q(x) @ self.k(x).transpose(1, 2) * 0.5 * torch.log(count(x, 1)) / torch.log(torch.tensor(128.0))
            ).softmax(-1)
            @ x
        ),
    },
)


class SquareOrNot(nn.Module):
    def forward(self, x):
        if x.shape[1] == x.shape[2]:
            return x + x.transpose(1, 2)
        return 2 * x


wrong(
    SquareOrNot,
    "equal dims",
    "x: float32[batch, rows, cols]",
    bounds={"batch": (1, 3), "rows": (1, 30), "cols": (1, 30)},
    probes=lambda: [{"x": torch.randn(2, r, c)} for r, c in ((4, 7), (5, 5), (23, 23), (1, 1), (30, 30))],
    forwards={"the other side only": lambda self, x: 2 * x, "transposes nothing": lambda self, x: x + x},
)


class CausalConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)

    def forward(self, x):
        return self.conv(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)


wrong(
    CausalConv,
    "padding and chunks",
    LINE,
    bounds=LONG,
    probes=at_sizes((2, 1), (1, 100)),
    forwards={
        "padded on both sides": lambda self, x: self.conv(F.pad(x.transpose(1, 2), (1, 1))).transpose(1, 2),
        "replicated padding": lambda self, x: self.conv(F.pad(x.transpose(1, 2), (2, 0), mode="replicate")).transpose(
            1, 2
        ),
    },
)


class Pool(nn.Module):
    def forward(self, x):
        return F.avg_pool1d(x, 5, 2, 2, ceil_mode=True, count_include_pad=False)


wrong(
    Pool,
    "padding and chunks",
    "x: float32[batch, 2, time]",
    bounds={"batch": (1, 4), "time": (5, 80)},
    probes=lambda: [{"x": torch.randn(2, 2, t)} for t in (20, 5, 6, 7, 8, 33, 34)],
    route="trace",
    forwards={
        "padding counted": lambda self, x: F.avg_pool1d(x, 5, 2, 2, ceil_mode=True, count_include_pad=True),
        "padding counted at the end only": lambda self, x: torch.cat(
            [
                F.avg_pool1d(x, 5, 2, 2, ceil_mode=True, count_include_pad=False)[..., :-1],
                F.avg_pool1d(x, 5, 2, 2, ceil_mode=True, count_include_pad=True)[..., -1:],
            ],
            -1,
        ),
    },
)


class Recent(nn.Module):
    def forward(self, x):
        weight = torch.arange(1, x.shape[1] + 1, dtype=x.dtype) / 100
        return (x * weight[:, None].clamp(max=1.0)).mean(1)


wrong(
    Recent,
    "position tables",
    LINE,
    bounds=LONG,
    probes=at_sizes((1, 99), (2, 102), (2, 400)),
    route="trace",
    forwards={
        "no clamp": lambda self, x: (x * (torch.arange(1, x.shape[1] + 1) / 100)[:, None]).mean(1),
        "counted from 0": lambda self, x: (x * (torch.arange(x.shape[1]) / 100)[:, None].clamp(max=1)).mean(1),
        "clamp at 0.9": lambda self, x: (x * (torch.arange(1, x.shape[1] + 1) / 100)[:, None].clamp(max=0.9)).mean(1),
    },
)
