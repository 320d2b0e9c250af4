"""Functions that cannot be captured as they are, and are computed by others that can.

`take_along_dim` reads sizes as plain numbers in C++, so that torch.export fixes what should stay open; `rrelu` without
training is captured as an operator that fills a tensor of noise, which has no translation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def take_along_dim(input: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    dim %= input.dim()
    around = [list(one.shape) for one in (input, indices)]
    for shape in around:
        shape[dim] = 1
    shapes: Any = torch.broadcast_shapes  # untyped
    common = list(shapes(*around))
    wide, places = (
        one.expand([*common[:dim], one.shape[dim], *common[dim + 1 :]]) for one in (input, indices)
    )
    return wide.gather(dim, places)


def rrelu(
    input: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> torch.Tensor:
    if training:
        return torch.rrelu(input, lower, upper, training)
    return torch.nn.functional.leaky_relu(input, (lower + upper) / 2, inplace)


STAND_INS: dict[Any, Callable[..., Any]] = {
    torch.take_along_dim: take_along_dim,
    torch.Tensor.take_along_dim: take_along_dim,
    torch.nn.functional.rrelu: rrelu,
}


class StandingIn(TorchFunctionMode):
    """Computes by the stand-ins while entered, and tells of each use."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        ours = STAND_INS.get(func)
        if ours is None:
            return func(*args, **(kwargs or {}))
        self._tell()
        return ours(*args, **(kwargs or {}))
