"""Fractional max pooling, written in torch: windows whose places are computed from given random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from fairway.torch_internals import OpOverload, Untyped


def _place_windows(sample: torch.Tensor, size: Untyped, count: Untyped, width: int) -> torch.Tensor:
    """Return the first place of each window [..., count]. The last one ends where the input ends."""
    steps = torch.arange(count, device=sample.device)
    if count == 1:
        ends: torch.Tensor = steps + (size - width)
        return ends.expand([*sample.shape, 1])
    slope = (size - width) / (count - 1)
    # Computed in the samples' own type, as PyTorch does, since a rounding decides on the place.
    places = torch.floor((sample[..., None] + steps.to(sample.dtype)) * slope) - torch.floor(sample * slope)[..., None]
    return torch.where(steps == count - 1, size - width, places.to(torch.int64))


def fractional_max_pool(
    self: torch.Tensor, kernel_size: Sequence[int], output_size: Sequence[Untyped], random_samples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rank = len(kernel_size)
    image = self if self.dim() == rank + 2 else self[None]
    sizes = list(image.shape[-rank:])
    index: Untyped = 0
    for dim in range(rank):
        # In two dims, the samples' first column is that of the width.
        column = random_samples[..., dim if rank == 3 else 1 - dim]
        starts = _place_windows(column, sizes[dim], output_size[dim], kernel_size[dim])
        places = starts[..., None] + torch.arange(kernel_size[dim], device=self.device)
        shape = [*places.shape[:2], *[1] * (2 * rank)]
        shape[2 + dim], shape[2 + rank + dim] = places.shape[2], places.shape[3]
        index = index * sizes[dim] + places.reshape(shape)
    batch = list(image.shape[:2])
    index = index.reshape([*index.shape[:2], *output_size, math.prod(kernel_size)]).expand([*batch, *output_size, -1])
    flat = image.reshape([*batch, math.prod(sizes)])
    windows = flat.gather(2, index.reshape([*batch, -1])).reshape(index.shape)
    values, picks = windows.max(-1)
    indices = index.gather(-1, picks[..., None])[..., 0]
    return (values, indices) if self.dim() == rank + 2 else (values[0], indices[0])


DECOMPOSITIONS: dict[OpOverload, Callable[..., Untyped]] = {
    torch.ops.aten.fractional_max_pool2d.default: fractional_max_pool,
    torch.ops.aten.fractional_max_pool3d.default: fractional_max_pool,
}
"""Functions of torch by the operator that they compute."""
