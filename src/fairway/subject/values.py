"""Input values for a spec: realistic ones by seed, and edges by flavour."""

from __future__ import annotations

from typing import Literal

import torch

from fairway.subject.dims import Point
from fairway.subject.spec import TensorSpec

Flavour = Literal["normal", "zeros", "large", "least", "most"]
FLAVOURS: tuple[Flavour, ...] = ("normal", "zeros", "large", "least", "most")
"""`normal` draws by seed; the others are edges: all zero, large numbers, and the ends of the legal values."""

UNDECLARED_BELOW = 10
"""Whole numbers without a declared limit are drawn from 0..9."""

LARGE = 30.0


def make_tensor(spec: TensorSpec, point: Point, generator: torch.Generator, flavour: Flavour) -> torch.Tensor:
    """A legal tensor for `spec` at `point`, reproducible from the generator's state."""
    shape = spec.sizes(point)
    dtype = getattr(torch, spec.dtype)
    if spec.values.mask:
        return _mask(spec.values.mask, shape, generator, flavour).to(dtype)
    if spec.values.lengths is not None:
        most = spec.values.lengths.at(point)
        return _whole(shape, min(1, most), most, generator, flavour).to(dtype)
    if dtype == torch.bool:
        if flavour in ("least", "zeros", "most"):
            return torch.full(shape, flavour == "most")
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return _real(spec, shape, dtype, generator, flavour)
    low = int(spec.values.low or 0)
    if spec.values.below is not None:
        high = spec.values.below - 1
    elif spec.values.high is not None:
        high = int(spec.values.high)
    else:
        high = UNDECLARED_BELOW - 1
    return _whole(shape, low, high, generator, flavour).to(dtype)


def _real(
    spec: TensorSpec, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, flavour: Flavour
) -> torch.Tensor:
    low, high = spec.values.low, spec.values.high
    if low is not None and high is not None:
        if flavour in ("least", "most"):
            return torch.full(shape, low if flavour == "least" else high, dtype=dtype)
        if flavour == "zeros" and low <= 0 <= high:
            return torch.zeros(shape, dtype=dtype)
        return (low + (high - low) * torch.rand(shape, generator=generator)).to(dtype)
    if flavour == "zeros":
        return torch.zeros(shape, dtype=dtype)
    drawn = torch.randn(shape, generator=generator, dtype=torch.complex64 if dtype.is_complex else torch.float32)
    return (drawn * LARGE if flavour == "large" else drawn).to(dtype)


def _whole(
    shape: tuple[int, ...], low: int, high: int, generator: torch.Generator, flavour: Flavour
) -> torch.Tensor:
    if flavour in ("least", "zeros"):
        return torch.full(shape, low)
    if flavour == "most":
        return torch.full(shape, high)
    return torch.randint(low, high + 1, shape, generator=generator)


def _mask(kind: str, shape: tuple[int, ...], generator: torch.Generator, flavour: Flavour) -> torch.Tensor:
    """Rows padded on one side, drawn where the kind leaves it open; `least` pads nothing, `most` all but one."""
    rows, length = shape[:-1], shape[-1]
    if flavour in ("least", "zeros"):
        real = torch.full(rows, length)
    elif flavour == "most":
        real = torch.ones(rows, dtype=torch.int64)
    else:
        real = torch.randint(1, max(length, 1) + 1, rows, generator=generator)
    side = torch.rand((), generator=generator)
    left = "left" in kind or ("right" not in kind and side < 0.5)
    place = torch.arange(length)
    keep = place >= length - real[..., None] if left else place < real[..., None]
    return keep if kind.startswith("keep") else ~keep


def resemble(
    example: torch.Tensor, shape: tuple[int, ...], generator: torch.Generator, flavour: Flavour
) -> torch.Tensor:
    """A tensor of another shape whose values stay within those of `example`, which is all that is known to be legal."""
    if example.numel() == 0:
        return torch.zeros(shape, dtype=example.dtype)
    if flavour in ("least", "most") and not example.dtype.is_complex:
        edge = example.min() if flavour == "least" else example.max()
        return edge.expand(shape).clone()
    if example.dtype.is_floating_point and example.numel() > 8:
        wide = example.double()
        spread = float(wide.std())
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64) * spread + float(wide.mean())
        return drawn.clamp(float(wide.min()), float(wide.max())).to(example.dtype)
    if not (example.dtype.is_floating_point or example.dtype.is_complex or example.dtype == torch.bool):
        drawn = torch.randint(int(example.min()), int(example.max()) + 1, shape, generator=generator)
        return drawn.to(example.dtype)
    pick = torch.randint(0, example.numel(), shape, generator=generator)
    return example.reshape(-1)[pick.reshape(-1)].reshape(shape).clone()
