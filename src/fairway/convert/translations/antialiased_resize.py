"""Resizing with antialiasing, written in torch as products with matrices of weights.

torch.onnx translates it by ONNX's Resize, and leaves align_corners and scales out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fairway.torch_internals import Untyped


def _make_weights(size: Untyped, count: Untyped, scale: Untyped, is_cubic: bool) -> torch.Tensor:
    """Return the weights [count, size] with which inputs are averaged, as PyTorch's antialiasing has them."""
    span, slope = (scale, 1 / scale) if scale >= 1 else (1.0, 1.0)
    support = (2.0 if is_cubic else 1.0) * span
    center = scale * (torch.arange(count, dtype=torch.float64) + 0.5)
    first = torch.floor(torch.clamp(center - support + 0.5, min=0))
    last = torch.clamp(torch.floor(center + support + 0.5), max=size)
    places = torch.arange(size, dtype=torch.float64)
    apart = ((places - center[:, None] + 0.5) * slope).abs()
    inside = (places >= first[:, None]) & (places < last[:, None])
    if is_cubic:
        near = (1.5 * apart - 2.5) * apart * apart + 1
        far = ((-0.5 * apart + 2.5) * apart - 4) * apart + 2
        weights = torch.where(apart < 1, near, torch.where(apart < 2, far, 0.0))
    else:
        weights = torch.clamp(1 - apart, min=0)
    weights = torch.where(inside, weights, 0.0)
    return weights / weights.sum(1, keepdim=True)


def make_upsampling(is_cubic: bool) -> Callable[..., torch.Tensor]:
    def upsample(
        input: torch.Tensor,
        output_size: Sequence[Untyped],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> torch.Tensor:
        result = input
        for dim, count, scale in zip((-2, -1), output_size, (scales_h, scales_w), strict=True):
            size = input.shape[dim]
            if align_corners:
                ratio = (size - 1) / (count - 1) if count > 1 else 0.0
            else:
                ratio = 1 / scale if scale else size / count
            weights = _make_weights(size, count, ratio, is_cubic).to(input.dtype)
            result = result @ weights.T if dim == -1 else weights @ result
        return result

    return upsample


def make_upsampling_by_factors(is_cubic: bool) -> Callable[..., torch.Tensor]:
    upsample = make_upsampling(is_cubic)

    def upsample_by_factors(
        input: torch.Tensor,
        output_size: Sequence[Untyped] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> torch.Tensor:
        if scale_factors is None:
            assert output_size is not None
            return upsample(input, output_size, align_corners)
        truncate: Untyped = torch.sym_int  # untyped
        sizes = [truncate(size * factor) for size, factor in zip(input.shape[-2:], scale_factors, strict=True)]
        return upsample(input, sizes, align_corners, *scale_factors)

    return upsample_by_factors
