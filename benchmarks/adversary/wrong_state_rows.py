"""Wrong files with random operators, without the model's state, or with rows mixed up."""

from __future__ import annotations

import torch
from case import wrong
from torch import nn

BATCH = {"batch": (1, 6)}
LINE = "x: float32[batch, 5]"


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x))


def noisy(scale):
    """Add normal noise of a scale to the output."""
    return wrap_output_noise("RandomNormalLike", scale)


def wrap_output_noise(operator, scale):
    from onnx import helper

    def mutate(proto):
        graph = proto.graph
        output = graph.output[0].name
        for node in graph.node:
            node.output[:] = ["before" if name == output else name for name in node.output]
        attributes = {"scale": scale} if operator == "RandomNormalLike" else {"high": scale, "low": 0.0}
        graph.node.append(helper.make_node(operator, ["before"], ["noise"], dtype=1, **attributes))
        graph.node.append(helper.make_node("Add", ["before", "noise"], [output]))

    return mutate


wrong(
    Plain,
    "random operators",
    LINE,
    bounds=BATCH,
    tolerance=1e-6,
    probes=lambda: [{"x": torch.randn(2, 5)}, {"x": torch.randn(4, 5)}],
    mutations={
        "normal noise 0.1": noisy(0.1),
        "normal noise 1e-4": noisy(1e-4),
        "uniform noise 0.01": wrap_output_noise("RandomUniformLike", 0.01),
    },
)


def rows_of(x):
    """Return the row numbers as a column, computed at run time."""
    return torch.ones_like(x[:, :1]).cumsum(0) - 1


def on_rows(condition):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        row = rows_of(x)
        return torch.where(condition(row, row.max() + 1), y * 0.7, y)

    return forward


wrong(
    Plain,
    "rows",
    LINE,
    bounds=BATCH,
    probes=lambda: [
        {"x": torch.randn(3, 5)},
        {"x": torch.randn(1, 5)},
        {"x": torch.randn(5, 5)},
        {"x": torch.randn(6, 5)},
    ],
    forwards={
        "only row 0 is right": on_rows(lambda row, n: row > 0),
        "rows from 4 on": on_rows(lambda row, n: row >= 4),
        "the last of five": on_rows(lambda row, n: (row == n - 1) & (n == 5)),
        "reversed from 3 rows on": lambda self, x: torch.where(
            rows_of(x).max() > 2, torch.tanh(self.linear(x.flip(0))), torch.tanh(self.linear(x))
        ),
        "normed over the batch": lambda self, x: torch.tanh(self.linear(x)) + 0.01 * (x[:, :4] - x[:, :4].mean(0)),
        "row 0 added": lambda self, x: torch.tanh(self.linear(x)) + 0.05 * (x[:, :4] - x[:1, :4]),
    },
)


class AcrossBatch(nn.Module):
    def __init__(self, kind="cumsum"):
        super().__init__()
        self.linear = nn.Linear(5, 4)

    def forward(self, x):
        return self.linear(x).cumsum(0)


wrong(
    AcrossBatch,
    "rows",
    LINE,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(3, 5)}, {"x": torch.randn(1, 5)}, {"x": torch.randn(6, 5)}],
    forwards={
        "rows alone": lambda self, x: self.linear(x),
        "sum from the end": lambda self, x: self.linear(x).flip(0).cumsum(0).flip(0),
        "two rows only": lambda self, x: (y := self.linear(x)) + torch.cat([y[:1] * 0, y[:-1]]),
    },
)


class RelativeToFirst(nn.Module):
    def forward(self, x):
        return x - x[:1]


wrong(
    RelativeToFirst,
    "rows",
    LINE,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(3, 5)}, {"x": torch.randn(1, 5)}, {"x": torch.randn(6, 5)}],
    forwards={
        "relative to the last": lambda self, x: x - x[-1:],
        "relative to the row before": lambda self, x: x - torch.cat([x[:1], x[:-1]]),
        "relative to the mean": lambda self, x: x - x.mean(0, keepdim=True),
    },
)


class BatchMax(nn.Module):
    """Normalizes by the loudest row of the batch."""

    def forward(self, x):
        return x / x.abs().max().clamp(min=1e-6)


wrong(
    BatchMax,
    "rows",
    LINE,
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(3, 5)}, {"x": torch.randn(1, 5)}, {"x": torch.randn(6, 5)}],
    forwards={
        "by row": lambda self, x: x / x.abs().amax(-1, keepdim=True).clamp(min=1e-6),
        "by column": lambda self, x: x / x.abs().amax(0, keepdim=True).clamp(min=1e-6),
        "by the largest, not absolute": lambda self, x: x / x.max().abs().clamp(min=1e-6),
    },
)


class Counter(nn.Module):
    """Adds the number of calls so far, as a warm-up would."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * torch.clamp(self.calls / 4, max=1.0)


class Previous(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(5))

    def forward(self, x):
        out = x - self.last
        self.last = x[-1].detach().clone()
        return out


class ExponentialMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x - self.mean


FOUR = lambda: [{"x": torch.randn(3, 5)} for _ in range(4)]  # noqa: E731
wrong(
    Counter,
    "state",
    LINE,
    bounds=BATCH,
    probes=FOUR,
    sequence=True,
    forwards={
        "the first call always": lambda self, x: x * 0.25,
        "the later calls always": lambda self, x: x + 0,
    },
)
wrong(
    Previous,
    "state",
    LINE,
    bounds=BATCH,
    probes=FOUR,
    sequence=True,
    forwards={
        "no state": lambda self, x: x + 0,
        "the row before": lambda self, x: x - torch.cat([x[:1] * 0, x[:-1]]),
    },
)
wrong(
    ExponentialMean,
    "state",
    LINE,
    bounds=BATCH,
    probes=FOUR,
    sequence=True,
    forwards={
        "no state": lambda self, x: x - 0.1 * x.mean(0),
        "mean of this batch": lambda self, x: x - x.mean(0),
    },
)
