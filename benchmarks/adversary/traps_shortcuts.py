"""Traps with a shortcut on values: sorted, constant, singular or standard input, choices by value."""

from __future__ import annotations

import math

import torch
from case import trap
from torch import nn
from traps_branches import BATCH, FEATURES, SIGNAL, SMALL, features


@trap(
    "value branch",
    "a constant signal has no spectrum to normalize",
    SIGNAL,
    bounds=SMALL,
    probes=lambda: [{"x": torch.randn(2, 20)}, {"x": torch.full((2, 13), 0.7)}, {"x": torch.zeros(1, 9)}],
)
class ConstantSignal(nn.Module):
    def forward(self, x):
        if (x == x[:, :1]).all():
            return torch.zeros_like(x)
        return torch.softmax(x * 3, -1)


@trap(
    "value branch",
    "a nearly singular matrix is regularised",
    "a: float32[3, 3]",
    probes=lambda: [
        {"a": torch.randn(3, 3)},
        {"a": torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])},
        {"a": torch.zeros(3, 3)},
    ],
)
class SingularGuard(nn.Module):
    def forward(self, a):
        det = (
            a[0, 0] * (a[1, 1] * a[2, 2] - a[1, 2] * a[2, 1])
            - a[0, 1] * (a[1, 0] * a[2, 2] - a[1, 2] * a[2, 0])
            + a[0, 2] * (a[1, 0] * a[2, 1] - a[1, 1] * a[2, 0])
        )
        if abs(float(det)) < 1e-4:
            a = a + torch.eye(3)
        return a.T @ a


@trap(
    "value branch",
    "a ternary chooses the scale",
    example=lambda: (torch.randn(2, 8),),
    dims={"x": "batch 8"},
    bounds=BATCH,
    probes=lambda: features(1.0, 300.0, 0.1),
)
class TernaryScale(nn.Module):
    def forward(self, x):
        scale = 0.01 if x.max() > 100 else 1.0
        return torch.atan(x * scale)


@trap(
    "value branch",
    "sorted input skips the sort and a reversal",
    SIGNAL,
    bounds=SMALL,
    probes=lambda: [
        {"x": torch.randn(2, 20)},
        {"x": torch.arange(12.0).expand(2, 12).contiguous()},
        {"x": torch.zeros(2, 5)},
    ],
)
class SortedShortcut(nn.Module):
    def forward(self, x):
        ordered = x.sort(-1).values
        if torch.equal(ordered, x):
            return x.cumsum(-1)
        return ordered.flip(-1).cumsum(-1)


@trap(
    "value branch",
    "the expert of the batch is chosen by its mean gate",
    FEATURES,
    bounds=BATCH,
    probes=lambda: [*features(1.0, 1.0, 1.0), *({"x": torch.eye(8)[i][None] * s} for i in range(8) for s in (5, -5))],
)
class BatchExpert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 5)
        self.experts = nn.ModuleList(nn.Linear(8, 3) for _ in range(5))

    def forward(self, x):
        choice = int(self.gate(x).mean(0).argmax())
        return self.experts[choice](x)


@trap(
    "value branch",
    "too few positive elements fall back to the mean",
    SIGNAL,
    bounds=SMALL,
    probes=lambda: [
        {"x": torch.randn(2, 20)},
        {"x": -torch.rand(2, 20) - 0.1},
        {"x": torch.tensor([[-1.0, -2.0, 3.0]])},
    ],
)
class FewPositives(nn.Module):
    def forward(self, x):
        positive = (x > 0).float()
        if int(positive.sum()) < 2:
            return x.mean(-1)
        return (x * positive).sum(-1) / positive.sum(-1).clamp(min=1)


@trap(
    "value branch",
    "a dict dispatches by a code; unknown codes have a default",
    "x: float32[batch, 4]",
    "code: int64[1] < 20",
    bounds=BATCH,
    probes=lambda: [{"x": torch.randn(2, 4), "code": torch.tensor([c])} for c in (1, 0, 2, 7, 19)],
)
class CodeDispatch(nn.Module):
    def forward(self, x, code):
        kinds = {0: torch.relu, 1: torch.tanh, 2: torch.sigmoid}
        return kinds.get(int(code), torch.neg)(x)


@trap(
    "value branch",
    "standardized input is passed on as it is",
    SIGNAL,
    bounds=SMALL,
    probes=lambda: [
        {"x": torch.randn(2, 20) * 3 + 1},
        {"x": torch.tensor([[1.0, -1.0] * 10, [-1.0, 1.0] * 10]) * math.sqrt(39 / 40)},
    ],
)
class AlreadyStandard(nn.Module):
    def forward(self, x):
        if math.isclose(float(x.std()), 1.0, abs_tol=1e-3) and math.isclose(float(x.mean()), 0.0, abs_tol=1e-3):
            return x
        return (x - x.mean()) / (x.std() + 1e-5) * 2


@trap(
    "value branch",
    "both ends must be far out",
    example=lambda: (torch.randn(2, 8),),
    dims={"x": "batch 8"},
    bounds=BATCH,
    probes=lambda: [*features(1.0, 20.0), {"x": torch.tensor([[7.0, 0, 0, 0, 0, 0, 0, -7.0]])}],
)
class BothEndsFar(nn.Module):
    def forward(self, x):
        if x.max() > 6 and x.min() < -6:
            x = x.clamp(-6, 6).sign() * x.abs().log1p()
        return x * 0.5


@trap(
    "value loop",
    "a Python loop counts how often the sum fits",
    "x: float32[3] in 0..100",
    probes=lambda: [{"x": torch.tensor([1.0, 2.0, 3.0])}, {"x": torch.tensor([50.0, 1.0, 1.0])}, {"x": torch.zeros(3)}],
)
class RepeatByValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x):
        for _ in range(min(int(x.sum()) // 10, 4)):
            x = torch.relu(self.step(x))
        return x


@trap(
    "value branch",
    "rare repair of out-of-range coordinates",
    "boxes: float32[n, 4] in -2..2",
    bounds={"n": (1, 30)},
    probes=lambda: [
        {"boxes": torch.rand(5, 4)},
        {"boxes": torch.rand(5, 4) * 4 - 2},
        {"boxes": torch.rand(1, 4) * 0.2},
    ],
)
class BoxRepair(nn.Module):
    def forward(self, boxes):
        low, high = boxes[:, :2], boxes[:, 2:]
        if (high < low).all():
            low, high = high, low
        area = (high - low).clamp(min=0).prod(-1)
        if not (area > 0).any():
            return torch.full_like(area, -1.0)
        return area / area.max()
