"""A family: one model that exports rightly, with its spec, the dtypes it comes in, and why its files are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

Check = Callable[[list[np.ndarray], list[np.ndarray], list[np.ndarray]], bool]
"""From inputs, PyTorch's outputs and the file's to whether the file is right, where plain comparison does not say."""

NARROW = ("float32", "float16")


@dataclass(frozen=True)
class Family:
    """`{f}` in a spec line stands for the dtype."""

    name: str
    make: Callable[[], nn.Module]
    lines: tuple[str, ...]
    bounds: dict[str, tuple[int, int]]
    dtypes: tuple[str, ...] = NARROW
    scale: float = 1.0
    """How many times the usual tolerance the plain check allows, for what is ill-conditioned by intent."""
    why: str = "agrees with PyTorch at the points checked, by the plain tolerance"
    check: Check | None = None
    tags: tuple[str, ...] = field(default=())


FAMILIES: dict[str, Family] = {}


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function


class OfOne(Function):
    def forward(self, x: Any) -> Any:
        return self.function(x)


class OfTwo(Function):
    def forward(self, x: Any, y: Any) -> Any:
        return self.function(x, y)


def family(
    name: str, line: str | tuple[str, ...], bounds: dict[str, tuple[int, int]] | None = None, **settings: Any
) -> Callable[[Any], Any]:
    """Registers a Module class, or a function of one or two tensors, under a name."""
    lines = (line,) if isinstance(line, str) else line
    dims = re.findall(r"\b(batch|n|m)\b", " ".join(lines))
    limits = {"batch": (1, 4), "n": (1, 40), "m": (1, 9), **(bounds or {})}

    def keep(thing: Any) -> Any:
        def make() -> nn.Module:
            torch.manual_seed(0)
            if isinstance(thing, type):
                return thing().eval()
            return (OfOne if len(lines) == 1 else OfTwo)(thing).eval()

        chosen = {dim: limits[dim] for dim in dict.fromkeys(dims)}
        FAMILIES[name] = Family(name, make, lines, chosen, **settings)
        return thing

    return keep
