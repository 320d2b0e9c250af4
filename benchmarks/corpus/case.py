"""A case of the corpus: a model, its inputs as spec lines, the domain over which they are legal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Case:
    """`impossible` says why no ONNX file can be right; such cases are run, and count apart."""

    name: str
    family: str
    build: Callable[[], nn.Module]
    lines: tuple[str, ...]
    bounds: dict[str, tuple[int, int]]
    multiples: dict[str, int] = field(default_factory=dict)
    impossible: str = ""


IDIOMS: dict[str, Case] = {}


def idiom(
    *lines: str, training: bool = False, impossible: str = "", multiples: dict[str, int] | None = None, **bounds: Any
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Enters a module class in the corpus under its own name; its file is its family."""

    def enter(kind: type[nn.Module]) -> type[nn.Module]:
        def build() -> nn.Module:
            torch.manual_seed(0)
            return kind().train(training)

        assert kind.__name__ not in IDIOMS, kind.__name__
        family = kind.__module__.rsplit(".", 1)[-1]
        IDIOMS[kind.__name__] = Case(kind.__name__, family, build, lines, bounds, multiples or {}, impossible)
        return kind

    return enter


def stirred(model: nn.Module) -> nn.Module:
    """Weights that start all alike are drawn: gates at zero hide what lies behind them, and routers at zero tie."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point() and weight.numel() > 1 and bool((weight == weight.flatten()[0]).all()):
                weight += 0.1 * torch.randn_like(weight)
    return model
