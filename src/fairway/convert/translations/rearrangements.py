"""Writes into diagonals and strided views, extremes without a dim, and histograms, written in torch."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence

import torch

from fairway.torch_internals import (
    OpOverload,
    Untyped,
    aten_histogramdd_bin_edges,
    aten_histogramdd_from_bin_cts,
    aten_histogramdd_from_bin_tensors,
)


def diagonal_scatter(
    self: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    rank = self.dim()
    others = [d for d in range(rank) if d not in (dim1 % rank, dim2 % rank)]
    front = self.permute(dim1 % rank, dim2 % rank, *others)
    places = torch.arange(src.shape[-1], device=self.device)
    written = front.index_put((places + max(-offset, 0), places + max(offset, 0)), src.movedim(-1, 0))
    back = [0] * rank
    for position, dim in enumerate((dim1 % rank, dim2 % rank, *others)):
        back[dim] = position
    return written.permute(back)


def as_strided_scatter(
    self: torch.Tensor,
    src: torch.Tensor,
    size: Sequence[Untyped],
    stride: Sequence[Untyped],
    storage_offset: Untyped = None,
) -> torch.Tensor:
    places: Untyped = storage_offset or 0
    rank = len(size)
    for dim, (length, step) in enumerate(zip(size, stride, strict=True)):
        places = places + (torch.arange(length) * step).reshape([-1 if d == dim else 1 for d in range(rank)])
    if not isinstance(places, torch.Tensor):
        places = torch.full([], places)
    return self.reshape(-1).scatter(0, places.reshape(-1), src.reshape(-1)).reshape(self.shape)


def aminmax(self: torch.Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    dims = list(range(self.dim())) if dim is None else [dim]
    if not self.dim():
        return self.clone(), self.clone()
    return self.amin(dims, keepdim), self.amax(dims, keepdim)


def logspace(
    start: torch.Tensor | float,
    end: torch.Tensor | float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    **places: Untyped,
) -> torch.Tensor:
    """Count from both ends, as torch does; one step is the start alone."""
    kind = dtype or torch.get_default_dtype()
    count = torch.arange(steps).to(torch.float64)
    step = (end - start) / max(steps - 1, 1)
    power = torch.where(count < steps / 2, start + step * count, end - step * (steps - 1 - count))
    return torch.pow(float(base), power).to(kind)


def put(self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    flat = self.reshape(-1)
    places = torch.where(index < 0, index + flat.shape[0], index).reshape(-1)
    return flat.index_put((places,), source.reshape(-1), accumulate).reshape(self.shape)


def histogram_by_edges(
    self: torch.Tensor, bins: torch.Tensor, *, weight: torch.Tensor | None = None, density: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    values = self.reshape(-1, 1)
    weights = torch.ones_like(self) if weight is None else weight
    return _count([values], [bins], weights.reshape(-1), density), bins


def histogram(
    self: torch.Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    edges = _make_edges(self.reshape(-1), bins, range)
    return histogram_by_edges(self, edges, weight=weight, density=density)


def histogramdd_edges(
    self: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> list[torch.Tensor]:
    columns = self.reshape(-1, len(bins)).unbind(1)
    spans = [None if range is None else range[2 * d : 2 * d + 2] for d in builtins.range(len(bins))]
    return [_make_edges(*parts) for parts in zip(columns, bins, spans, strict=True)]


def histogramdd_by_counts(
    self: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> torch.Tensor:
    return histogramdd_by_edges(self, histogramdd_edges(self, bins, range=range), weight=weight, density=density)


def histogramdd_by_edges(
    self: torch.Tensor, bins: Sequence[torch.Tensor], *, weight: torch.Tensor | None = None, density: bool = False
) -> torch.Tensor:
    columns = [column[:, None] for column in self.reshape(-1, len(bins)).unbind(1)]
    weights = torch.ones_like(columns[0]) if weight is None else weight
    return _count(columns, bins, weights.reshape(-1), density)


def _make_edges(values: torch.Tensor, bins: int, span: Sequence[float] | None) -> torch.Tensor:
    if span is not None:
        return torch.linspace(span[0], span[1], bins + 1, dtype=values.dtype)
    low, high = values.min(), values.max()
    is_flat = (low == high).to(values.dtype)
    low, high = low - is_flat / 2, high + is_flat / 2
    # As torch.linspace: from both ends, so that the last edge is the largest value.
    places = torch.arange(bins + 1).to(values.dtype)
    step = (high - low) / bins
    return torch.where(places < (bins + 1) // 2, low + step * places, high - step * (bins - places))


def _count(
    columns: Sequence[torch.Tensor], edges: Sequence[torch.Tensor], weights: torch.Tensor, density: bool
) -> torch.Tensor:
    """Return the sums of weights in each cell. Only the last cell of a dim has its upper edge."""
    place: Untyped = 0
    shape = [edge.shape[0] - 1 for edge in edges]
    for column, edge, count in zip(columns, edges, shape, strict=True):
        below = (column >= edge).sum(1)
        inside = (below > 0) & (column[:, 0] <= edge[-1])
        weights = torch.where(inside, weights, 0.0)
        place = place * count + (below - 1).clamp(0, count - 1)
    total = torch.zeros([math.prod(shape)], dtype=weights.dtype).scatter_add(0, place, weights).reshape(shape)
    if density:
        total = total / total.sum()
        for dim, edge in enumerate(edges):
            total = total / edge.diff().reshape([-1 if d == dim else 1 for d in builtins.range(len(edges))])
    return total


DECOMPOSITIONS: dict[OpOverload, Callable[..., Untyped]] = {
    torch.ops.aten.diagonal_scatter.default: diagonal_scatter,
    torch.ops.aten.as_strided_scatter.default: as_strided_scatter,
    torch.ops.aten.aminmax.default: aminmax,
    torch.ops.aten.put.default: put,
    torch.ops.aten.logspace.Tensor_Tensor: logspace,
    torch.ops.aten.logspace.Tensor_Scalar: logspace,
    torch.ops.aten.logspace.Scalar_Tensor: logspace,
    torch.ops.aten.histogram.bin_ct: histogram,
    torch.ops.aten.histogram.bins_tensor: histogram_by_edges,
    aten_histogramdd_bin_edges: histogramdd_edges,
    aten_histogramdd_from_bin_cts: histogramdd_by_counts,
    aten_histogramdd_from_bin_tensors: histogramdd_by_edges,
}
"""Functions of torch by the operator that they compute."""
