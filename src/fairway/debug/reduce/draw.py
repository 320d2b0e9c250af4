"""Tensors that a script can draw in place of those that a model had."""

from __future__ import annotations

import torch


def draw(tensor: torch.Tensor) -> torch.Tensor:
    """What a script draws in place of a tensor, laid out in memory as that was; see `script.drawn`."""
    seed = torch.Generator().manual_seed(0)
    shape = [tensor.shape[axis] for axis in layout(tensor)]
    if tensor.dtype == torch.bool:
        made = torch.rand(shape, generator=seed) > 0.5
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        made = torch.randn(shape, generator=seed).to(tensor.dtype)
    else:
        made = torch.randint(*span(tensor), shape, generator=seed, dtype=tensor.dtype)
    return made.permute(back(layout(tensor)))


def layout(tensor: torch.Tensor) -> tuple[int, ...]:
    """The axes as they follow each other in memory: what an exporter makes of a view, or of attention, hangs on it."""
    axes, strides = range(tensor.dim()), tensor.stride()
    return tuple(axes if tensor.is_contiguous() else sorted(axes, key=lambda axis: -strides[axis]))


def back(order: tuple[int, ...]) -> tuple[int, ...]:
    """How to permute what was put into that order."""
    return tuple(order.index(axis) for axis in range(len(order)))


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The whole numbers that the tensor has, as bounds to draw between."""
    if tensor.numel() == 0:
        return 0, 1
    return int(tensor.min()), int(tensor.max()) + 1
