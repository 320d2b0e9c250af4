"""Random tensors that a script can draw in place of a model's own."""

from __future__ import annotations

import torch


def draw_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return the random tensor that a script draws in place of this one, in the same memory layout."""
    generator = torch.Generator().manual_seed(0)
    shape = [tensor.shape[axis] for axis in sort_axes_by_memory(tensor)]
    if tensor.dtype == torch.bool:
        drawn = torch.rand(shape, generator=generator) > 0.5
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        drawn = torch.randn(shape, generator=generator).to(tensor.dtype)
    else:
        drawn = torch.randint(*find_integer_bounds(tensor), shape, generator=generator, dtype=tensor.dtype)
    return drawn.permute(invert_permutation(sort_axes_by_memory(tensor)))


def sort_axes_by_memory(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the axes in memory order: exporters treat views and attention differently by it."""
    axes, strides = range(tensor.dim()), tensor.stride()
    return tuple(axes if tensor.is_contiguous() else sorted(axes, key=lambda axis: -strides[axis]))


def invert_permutation(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes `order`."""
    return tuple(order.index(axis) for axis in range(len(order)))


def find_integer_bounds(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the range of the tensor's integers, as bounds to draw between."""
    if tensor.numel() == 0:
        return 0, 1
    return int(tensor.min()), int(tensor.max()) + 1
