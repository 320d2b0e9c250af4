"""Helpers that the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

RECIPE = """\
import torch
import fairway


class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = torch.nn.Linear(3, width)

    def forward(self, x):
        return torch.relu(self.fc(x))


net = fairway.Recipe(Net, ["x: float32[batch, 3]"], bounds={"batch": (1, 16)})
"""

QUICK = ("--level", "quick", "--route", "trace")


@dataclass(frozen=True)
class Said:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Fairway = Callable[..., Said]
