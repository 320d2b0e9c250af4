"""Fourier transforms of complex tensors, on their real and imaginary parts."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fairway.convert.remedies.complex.complex_parts import (
    Parts,
    Rule,
    RuleValue,
    get_first_part,
    join_parts,
    split_parts,
    take_parts,
)
from fairway.torch_internals import aten_fft_c2c, aten_fft_r2c

_ATEN = torch.ops.aten


def transform_real(x: torch.Tensor, dim: list[int], normalization: int, onesided: bool) -> Parts:
    return narrow_parts(take_parts(aten_fft_r2c(_widen(x), dim, normalization, onesided)), x.dtype)


def transform_complex(value: Parts, dim: list[int], normalization: int, forward: bool) -> Parts:
    wide = join_parts(Parts(*map(_widen, value)))
    return narrow_parts(take_parts(aten_fft_c2c(wide, dim, normalization, forward)), value.real.dtype)


def _widen(part: torch.Tensor) -> torch.Tensor:
    """Return float32 as float64, in which transforms are computed.

    For 400 samples ONNX Runtime (1.31) is 200 times as far from the truth in float32 as PyTorch is, and for 16,000 it
    is off by a thousandth: it multiplies by chirps whose angles are rounded. Float64 takes at most 1.4 times as long.
    """
    return part.double() if part.dtype == torch.float32 else part


def narrow_parts(parts: Parts, dtype: torch.dtype) -> Parts:
    return parts if parts.real.dtype == dtype else Parts(parts.real.to(dtype), parts.imag.to(dtype))


def invert_to_real(value: Parts, dim: list[int], normalization: int, last_dim_size: RuleValue) -> torch.Tensor:
    """Invert a one-sided spectrum as a full one, because ONNX Runtime refuses a DFT that is one-sided and inverse."""
    *others, last = dim
    if others:
        value = transform_complex(value, others, normalization, False)
    last %= value.real.dim()
    half = [part.narrow(last, 0, last_dim_size // 2 + 1) for part in value]
    rest = [part.narrow(last, 1, (last_dim_size + 1) // 2 - 1).flip(last) for part in value]
    both = Parts(torch.cat([half[0], rest[0]], last), torch.cat([half[1], -rest[1]], last))
    return transform_complex(both, [last], normalization, False).real


def _number_normalization(norm: str | None, forward: bool) -> int:
    """Return torch's number for a normalization: 0 for none, 1 for the root of the length, 2 for the length."""
    if norm == "ortho":
        return 1
    return 2 if (norm == "forward") == forward else 0


def _resize(value: RuleValue, dim: int, length: RuleValue) -> RuleValue:
    """Cut the dim to the length, or pad it with zeros."""
    size = get_first_part(value).shape[dim]
    if length is None or statically_known_true(length == size):
        return value
    sym_min: RuleValue = torch.sym_min  # untyped
    sym_max: RuleValue = torch.sym_max  # untyped
    kept, rank = sym_min(length, size), get_first_part(value).dim()
    padding = [0, 0] * (rank - 1 - dim % rank) + [0, sym_max(length - size, 0)]

    def resize(part: torch.Tensor) -> torch.Tensor:
        padded: torch.Tensor = _ATEN.constant_pad_nd(part.narrow(dim, 0, kept), padding)
        return padded

    return Parts(*map(resize, value)) if isinstance(value, Parts) else resize(value)


def _read_dims(
    value: RuleValue, length: RuleValue, dim: RuleValue, rank: int | None
) -> tuple[RuleValue, list[int], list[RuleValue]]:
    """Return the value, the dims to transform, and the requested size of each dim (None: its own size)."""
    count = get_first_part(value).dim()
    if rank == 1:
        return value, [(-1 if dim is None else dim) % count], [length]
    sizes = None if length is None else list(length)
    if dim is None:
        number = 2 if rank == 2 else count if sizes is None else len(sizes)
        dim = list(range(count - number, count))
    return value, [d % count for d in dim], [None] * len(dim) if sizes is None else sizes


def make_transform(forward: bool, rank: int | None = 1) -> Rule:
    """Return the rule of a Fourier transform over one dim, over two, or over any number of them."""

    def apply(value: RuleValue, length: RuleValue = None, dim: RuleValue = None, norm: str | None = None) -> Parts:
        value, dims, sizes = _read_dims(split_parts(value), length, dim, rank)
        for d, size in zip(dims, sizes, strict=True):
            value = _resize(value, d, size)
        return transform_complex(value, dims, _number_normalization(norm, forward), forward)

    return apply


def make_real_transform(rank: int | None = 1) -> Rule:
    def apply(value: torch.Tensor, length: RuleValue = None, dim: RuleValue = None, norm: str | None = None) -> Parts:
        _, dims, sizes = _read_dims(value, length, dim, rank)
        for d, size in zip(dims, sizes, strict=True):
            value = _resize(value, d, size)
        return transform_real(value, dims, _number_normalization(norm, True), True)

    return apply


def make_inverse_real_transform(rank: int | None = 1) -> Rule:
    def apply(
        value: RuleValue, length: RuleValue = None, dim: RuleValue = None, norm: str | None = None
    ) -> torch.Tensor:
        value, dims, sizes = _read_dims(split_parts(value), length, dim, rank)
        last = sizes[-1] if sizes[-1] is not None else 2 * (value.real.shape[dims[-1]] - 1)
        for d, size in zip(dims, [*sizes[:-1], last // 2 + 1], strict=True):
            value = _resize(value, d, size)
        return invert_to_real(value, dims, _number_normalization(norm, False), last)

    return apply
