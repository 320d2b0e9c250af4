"""Decisions on values and on sizes."""

from __future__ import annotations

import torch
from case import idiom
from torch import nn


@idiom("x: float32[batch, 6]", batch=(1, 5))
class IfSumPositive(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        if x.sum() > 0:
            return self.up(x)
        return self.down(x)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class IfAnyNegative(nn.Module):
    def forward(self, x):
        if (x < 0).any():
            x = x - x.min()
        return x.sqrt()


@idiom("x: float32[batch, 6]", "flag: bool[]", batch=(1, 5))
class IfFlagTensor(nn.Module):
    def forward(self, x, flag):
        if flag:
            return x * 2
        return x + 1


@idiom("x: float32[batch, time]", batch=(1, 3), time=(1, 40))
class IfLong(nn.Module):
    def forward(self, x):
        if x.shape[1] > 16:
            return x[:, -16:].mean(1)
        return x.mean(1)


@idiom("x: float32[batch, time]", batch=(1, 3), time=(1, 40))
class PadToMultipleOfEight(nn.Module):
    def forward(self, x):
        extra = x.shape[1] % 8
        if extra:
            x = torch.nn.functional.pad(x, (0, 8 - extra))
        return x.reshape(x.shape[0], -1, 8).sum(-1)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
            if self.head(x).softmax(-1).max() > 0.8:
                break
        return self.head(x)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class EarlyReturnInLoop(nn.Module):
    def forward(self, x):
        for step in range(4):
            if x.abs().sum() < 1:
                return x * step
            x = x / 3
        return x


@idiom("x: float32[batch, time]", batch=(1, 3), time=(1, 20))
class MinOfSizes(nn.Module):
    def forward(self, x):
        n = min(x.shape[1], 7)
        return x[:, :n].cumsum(1)


@idiom("x: float32[batch, time]", batch=(1, 3), time=(1, 20))
class AssertThenReshape(nn.Module):
    def forward(self, x):
        assert x.dim() == 2 and x.shape[1] > 0
        return x.view(x.shape[0], x.shape[1], 1).expand(-1, -1, 3)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class WhereOnValues(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, torch.log1p(x.clamp(min=0)), -x)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class CondOperator(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@idiom("x: float32[batch, 6]", "mode: int64[] < 3", batch=(1, 5))
class ElifChain(nn.Module):
    def forward(self, x, mode):
        if mode == 0:
            return x.relu()
        elif mode == 1:
            return x.tanh()
        else:
            return x.sigmoid()


@idiom("x: float32[batch, 6]", batch=(1, 5))
class TernaryOnMean(nn.Module):
    def forward(self, x):
        scale = 2.0 if x.mean() > 0 else 0.5
        return x * scale


@idiom("x: float32[batch, 6]", batch=(1, 5))
class MaxItemScale(nn.Module):
    def forward(self, x):
        top = x.abs().max().item()
        return x / (top + 1)


@idiom("x: float32[batch, 6]", batch=(1, 5))
class FloatOfTensor(nn.Module):
    def forward(self, x):
        return x * float(x.std() + 1)


@idiom("x: float32[batch, time, 4]", batch=(1, 4), time=(1, 9))
class SingletonSqueeze(nn.Module):
    """`squeeze()` without an axis: batch 1 or time 1 changes the rank."""

    def forward(self, x):
        y = x.mean(-1)
        return y.squeeze(1) if y.shape[1] == 1 else y.max(1).values


@idiom("x: float32[batch, 6]", "t: int64[] < 10", batch=(1, 4))
class ScheduleLookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("alpha", torch.linspace(1, 0.1, 10))

    def forward(self, x, t):
        return x * self.alpha[t]


@idiom("x: float32[batch, 6]", batch=(1, 4))
class TryNumpyConstant(nn.Module):
    def __init__(self):
        super().__init__()
        import numpy

        self.window = numpy.hanning(6)

    def forward(self, x):
        return x * torch.from_numpy(self.window).to(x.dtype)


@idiom("x: float32[batch, time, 8]", batch=(1, 3), time=(2, 30))
class PositionTableGrown(nn.Module):
    """Sinusoids computed for the length at hand, as many tutorials do."""

    def forward(self, x):
        length, width = x.size(1), x.size(2)
        position = torch.arange(length, dtype=torch.float32).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2).float() * (-4.0 / width))
        table = torch.zeros(length, width)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate)
        return x + table


@idiom("x: float32[batch, time, 8]", batch=(1, 3), time=(2, 30))
class CausalMaskCachedByLength(nn.Module):
    """A mask kept on the module and made anew when the length changes."""

    def __init__(self):
        super().__init__()
        self.mask = None

    def forward(self, x):
        n = x.size(1)
        if self.mask is None or self.mask.size(0) != n:
            self.mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
        scores = x @ x.transpose(1, 2) + self.mask
        return scores.softmax(-1) @ x
