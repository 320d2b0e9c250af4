"""Functions that cannot be captured as they are, and are computed by others that can.

`take_along_dim`, `kron` and `tensor_split` read sizes as plain numbers in C++, so that torch.export fixes what should
stay open. The inverse of a real Fourier transform becomes a DFT that is one-sided and inverse at once, which ONNX
Runtime refuses; it is the inverse of the whole spectrum. A tensor like a complex one has no translation; it is made of
its two parts, and so are a sum of products of complex tensors by `einsum`, a complex exponential, and a product with a
complex number. `rrelu` without training is captured as an operator that fills a tensor of noise, which has none either.
A transposed convolution to a given size has its padding from that size, which in ONNX is a constant of the node: it is
padded as far as may be, and cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
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
    wide, places = (one.expand([*common[:dim], one.shape[dim], *common[dim + 1 :]]) for one in (input, indices))
    return wide.gather(dim, places)


def rrelu(
    input: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Any:
    return NotImplemented if training else torch.nn.functional.leaky_relu(input, (lower + upper) / 2, inplace)


def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    rank = max(input.dim(), other.dim())
    left, right = ([1] * (rank - one.dim()) + list(one.shape) for one in (input, other))
    wide = input.reshape([size for n in left for size in (n, 1)]) * other.reshape([s for n in right for s in (1, n)])
    return wide.reshape([a * b for a, b in zip(left, right, strict=True)])


def tensor_split(input: torch.Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    """Into so many parts, the first ones longer by one where the length cannot be divided."""
    if not isinstance(indices_or_sections, int):
        return NotImplemented
    dim %= input.dim()
    size, longer = input.shape[dim] // indices_or_sections, input.shape[dim] % indices_or_sections
    least: Any = torch.sym_min  # untyped
    ends = [i * size + least(i, longer) for i in range(indices_or_sections + 1)]
    before = (slice(None),) * dim
    return tuple(input[(*before, slice(*pair))] for pair in pairwise(ends))


def irfft(input: torch.Tensor, n: Any = None, dim: int = -1, norm: str | None = None, out: Any = None) -> Any:
    dim %= input.dim()
    n = 2 * (input.shape[dim] - 1) if n is None else n
    before = (slice(None),) * dim
    if n // 2 + 1 > input.shape[dim] or out is not None:
        return NotImplemented  # what is missing would have to be filled up
    half = input[(*before, slice(n // 2 + 1))]
    rest = input[(*before, slice(1, (n + 1) // 2))].flip(dim).conj()
    return torch.fft.ifft(torch.cat([half, rest], dim), dim=dim, norm=norm).real


def _like(fill: float) -> Callable[..., Any]:
    def like(input: torch.Tensor, **settings: Any) -> Any:
        if not input.is_complex() or settings.get("dtype") is not None:
            return NotImplemented
        real = torch.full(list(input.shape), fill, dtype=input.dtype.to_real())
        return torch.view_as_complex(torch.stack([real, torch.zeros_like(real)], -1))

    return like


def einsum(equation: Any, *operands: Any) -> Any:
    """A product of sums is made of the parts' products: those with an even number of imaginary factors are real."""
    given = operands[0] if len(operands) == 1 and not isinstance(operands[0], torch.Tensor) else operands
    if not isinstance(equation, str) or not all(one.is_complex() for one in given):
        return NotImplemented
    sums: list[Any] = [0, 0]
    for chosen in product((0, 1), repeat=len(given)):
        parts = [_part(one, part) for part, one in zip(chosen, given, strict=True)]
        sign = -1 if sum(chosen) % 4 >= 2 else 1
        sums[sum(chosen) % 2] = sums[sum(chosen) % 2] + sign * torch.einsum(equation, *parts)
    return torch.view_as_complex(torch.stack(sums, -1))


def _part(value: torch.Tensor, imaginary: int) -> torch.Tensor:
    if not value.is_complex():
        return value
    return torch.view_as_real(value.resolve_conj())[..., imaginary]


def exp(input: torch.Tensor, **settings: Any) -> Any:
    if not input.is_complex() or settings:
        return NotImplemented
    length, angle = _part(input, 0).exp(), _part(input, 1)
    return torch.view_as_complex(torch.stack([length * angle.cos(), length * angle.sin()], -1))


def mul(input: torch.Tensor, other: Any, **settings: Any) -> Any:
    if not isinstance(other, complex) or settings:
        return NotImplemented
    real, imaginary = _part(input, 0), (_part(input, 1) if input.is_complex() else None)
    if not real.is_floating_point():
        return NotImplemented
    parts = [real * other.real, real * other.imag]
    if imaginary is not None:
        parts = [parts[0] - imaginary * other.imag, parts[1] + imaginary * other.real]
    return torch.view_as_complex(torch.stack(parts, -1))


def _transposed(plain: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def convolve(
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        asked = _each(output_padding, weight)
        if not any(isinstance(one, torch.SymInt) for one in asked):
            return NotImplemented
        most = [max(s, d) - 1 for s, d in zip(_each(stride, weight), _each(dilation, weight), strict=True)]
        whole = plain(input, weight, bias, stride, padding, most, groups, dilation)
        sizes = list(whole.shape)[-len(most) :]
        for dim, (n, m, a) in enumerate(zip(sizes, most, asked, strict=True), whole.dim() - len(most)):
            whole = whole.narrow(dim, 0, n - (m - a))
        return whole

    return convolve


def _each(setting: Any, weight: torch.Tensor) -> list[Any]:
    """One for each dim of the picture."""
    return list(setting) if isinstance(setting, Sequence) else [setting] * (weight.dim() - 2)


_CONVOLUTIONS = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)

STAND_INS: dict[Any, Callable[..., Any]] = {
    torch.take_along_dim: take_along_dim,
    torch.Tensor.take_along_dim: take_along_dim,
    torch.nn.functional.rrelu: rrelu,
    torch.kron: kron,
    torch.fft.irfft: irfft,
    torch.zeros_like: _like(0.0),
    torch.ones_like: _like(1.0),
    torch.einsum: einsum,
    torch.exp: exp,
    torch.Tensor.exp: exp,
    torch.mul: mul,
    torch.Tensor.mul: mul,
    torch.Tensor.__mul__: mul,
    torch.Tensor.__rmul__: mul,
    torch.tensor_split: tensor_split,
    torch.Tensor.tensor_split: tensor_split,
    **{plain: _transposed(plain) for plain in _CONVOLUTIONS},
}
"""They answer NotImplemented where the function itself will do."""


class StandingIn(TorchFunctionMode):
    """Computes by the stand-ins while entered, and tells of each use."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        ours = STAND_INS.get(func)
        answer = ours(*args, **(kwargs or {})) if ours is not None else NotImplemented
        if answer is NotImplemented:
            return func(*args, **(kwargs or {}))
        self._tell()
        return answer
