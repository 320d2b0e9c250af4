"""Right files whose decision after a sum only chooses between equal answers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from case import right
from right_decisions import FRAMES, LONG, SIGNAL, frames, signals
from torch import nn


@right(
    "decision that only routes",
    "both sides agree where the decision is near",
    SIGNAL,
    bounds=LONG,
    probes=signals(2999),
)
class SoftRouting(nn.Module):
    def forward(self, x):
        level = x.pow(2).mean(-1, keepdim=True)
        return torch.where(level > 1.0, x / level.clamp(min=1.0), x)


@right(
    "decision that only routes",
    "gather by topk gives equal values for equal scores",
    "x: float32[batch, time]",
    bounds={"batch": (1, 4), "time": (4, 1000)},
    probes=signals(900),
)
class TopValues(nn.Module):
    def forward(self, x):
        scores = x - x.mean(-1, keepdim=True)
        return scores.gather(-1, scores.topk(4, -1).indices)


@right(
    "decision that only routes",
    "the maximum is the same whichever place has it",
    FRAMES,
    bounds=LONG,
    probes=frames(2000),
)
class BestFrameValue(nn.Module):
    def forward(self, x):
        return F.log_softmax(x.mean(1), -1).max(-1).values
