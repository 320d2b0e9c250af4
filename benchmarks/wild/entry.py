"""Enters models of packages in the wild corpus."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from case import Case, stirred
from torch import nn

WILD: dict[str, Case] = {}


def model(
    package: str, *lines: str, multiples: dict[str, int] | None = None, impossible: str = "", **bounds: tuple[int, int]
) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """Enter a function that builds a model under the package's name and its own; its file is its subject."""

    def enter(function: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        name = f"{package}/{function.__name__}"
        assert name not in WILD, name

        def build() -> nn.Module:
            for seed in (random.seed, np.random.seed, torch.manual_seed):  # some packages draw weights by numpy
                seed(0)
            return stirred(function().eval())

        subject = function.__module__.rsplit(".", 1)[-1]
        WILD[name] = Case(name, subject, build, lines, dict(bounds), multiples or {}, impossible)
        return function

    return enter


class Calling(nn.Module):
    """A model whose users call something else than `forward`, or take one part of what it returns."""

    def __init__(self, held: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.held = held
        self.call = call

    def forward(self, x: torch.Tensor) -> Any:
        return self.call(self.held, x)
