"""Tensors that a script can draw in place of those that a model had."""

from __future__ import annotations

import torch


def draw(tensor: torch.Tensor) -> torch.Tensor:
    """What a script draws in place of a tensor; see `script.drawn`."""
    seed = torch.Generator().manual_seed(0)
    if tensor.dtype == torch.bool:
        return torch.rand(tensor.shape, generator=seed) > 0.5
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return torch.randn(tensor.shape, generator=seed).to(tensor.dtype)
    low, high = span(tensor)
    return torch.randint(low, high, tensor.shape, generator=seed, dtype=tensor.dtype)


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The whole numbers that the tensor has, as bounds to draw between."""
    if tensor.numel() == 0:
        return 0, 1
    return int(tensor.min()), int(tensor.max()) + 1
