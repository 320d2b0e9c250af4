"""Functions that cannot be captured as they are, computed by others that can.

- `take_along_dim`, `kron` and `tensor_split` read sizes as plain numbers in C++, so torch.export fixes dynamic dims.
- The inverse of a real Fourier transform without a length, the mean of complex numbers and `istft` read sizes as plain
  numbers, too. `istft` adds the inverse spectra of the frames up.
- `x.data` is a tensor that no capture follows (torch.export without `strict`, torch 2.13).
- `linspace` asks for its length as a plain number, also if it is a value.
- `scaled_dot_product_attention` takes no `is_causal` that depends on a size.
- `rrelu` without training is captured as an operator that fills a tensor with noise, which has no translation either.
- Covariances, combinations, least squares and narrowing by a tensor are in `statistics`.
- A transposed convolution to a given size takes its padding from that size, but in ONNX the padding is a constant of
  the node. So the largest padding is used, and the result is cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.overrides import TorchFunctionMode

from fairway.convert.translations import statistics
from fairway.torch_internals import Untyped, check, patch_attribute


def take_along_dim(input: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    dim %= input.dim()
    around = [list(tensor.shape) for tensor in (input, indices)]
    for shape in around:
        shape[dim] = 1
    broadcast_shapes: Untyped = torch.broadcast_shapes  # untyped
    common = list(broadcast_shapes(*around))
    values, places = (
        tensor.expand([*common[:dim], tensor.shape[dim], *common[dim + 1 :]]) for tensor in (input, indices)
    )
    return values.gather(dim, places)


def rrelu(
    input: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Untyped:
    return NotImplemented if training else torch.nn.functional.leaky_relu(input, (lower + upper) / 2, inplace)


def read_data(input: torch.Tensor) -> torch.Tensor:
    """Return `input.data`, which a capture without `strict` takes for a constant."""
    return input.detach()


def linspace(start: Untyped, end: Untyped, steps: Untyped, **settings: Untyped) -> Untyped:
    """Count up to a length that is a value. As in PyTorch, the second half counts back from the end."""
    is_value = isinstance(steps, torch.SymInt) and bool(free_unbacked_symbols(steps))
    if not is_value or not all(isinstance(bound, int | float) for bound in (start, end)) or "out" in settings:
        return NotImplemented
    check(steps >= 0)
    places = torch.arange(steps, device=settings.get("device")).to(settings.get("dtype") or torch.get_default_dtype())
    last = torch.scalar_tensor(steps, dtype=places.dtype) - 1
    step = (end - start) / last.clamp(min=1)
    return torch.where(2 * places <= last, start + step * places, end - step * (last - places))


def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    rank = max(input.dim(), other.dim())
    left, right = ([1] * (rank - tensor.dim()) + list(tensor.shape) for tensor in (input, other))
    wide = input.reshape([size for n in left for size in (n, 1)]) * other.reshape([s for n in right for s in (1, n)])
    return wide.reshape([a * b for a, b in zip(left, right, strict=True)])


def tensor_split(input: torch.Tensor, indices_or_sections: Untyped, dim: int = 0) -> Untyped:
    """Split into a number of parts. The first ones are longer by one if the length is not divisible."""
    if not isinstance(indices_or_sections, int):
        return NotImplemented
    dim %= input.dim()
    size, longer = input.shape[dim] // indices_or_sections, input.shape[dim] % indices_or_sections
    least: Untyped = torch.sym_min  # untyped
    ends = [i * size + least(i, longer) for i in range(indices_or_sections + 1)]
    before = (slice(None),) * dim
    return tuple(input[(*before, slice(*pair))] for pair in pairwise(ends))


def irfft(
    input: torch.Tensor, n: Untyped = None, dim: int = -1, norm: str | None = None, out: Untyped = None
) -> Untyped:
    """Pass the length on: torch reads it off the input as a plain number."""
    if n is not None or out is not None:
        return NotImplemented
    return torch.fft.irfft(input, 2 * (input.shape[dim] - 1), dim, norm)


def irfftn(
    input: torch.Tensor, s: Untyped = None, dim: Untyped = None, norm: str | None = None, out: Untyped = None
) -> Untyped:
    if s is not None or out is not None:
        return NotImplemented
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    sizes = [input.shape[d] for d in dims]
    return torch.fft.irfftn(input, [*sizes[:-1], 2 * (sizes[-1] - 1)], dims, norm)


def irfft2(
    input: torch.Tensor, s: Untyped = None, dim: Untyped = (-2, -1), norm: str | None = None, out: Untyped = None
) -> Untyped:
    return irfftn(input, s, dim, norm, out)


def mean(input: torch.Tensor, dim: Untyped = None, keepdim: bool = False, **settings: Untyped) -> Untyped:
    """Divide the sum of complex numbers by their number, which torch reads as a plain number."""
    if not input.is_complex() or settings:
        return NotImplemented
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return input.sum(dims, keepdim) / math.prod(input.shape[d] for d in dims)


def istft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Untyped = None,
    return_complex: bool = False,
) -> Untyped:
    """Add the inverse spectra of the frames up where they overlap, and divide by the sum of the squared windows."""
    if return_complex:
        return NotImplemented
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    window = torch.ones(width, device=input.device) if window is None else window
    before = (n_fft - width) // 2
    window = torch.nn.functional.pad(window, (before, n_fft - width - before))
    batch, frames = list(input.shape[:-2]), input.shape[-1]
    # Of a spectrum with both sides, PyTorch also uses the first one alone.
    spectra = input.reshape(-1, input.shape[-2], frames)[:, : n_fft // 2 + 1]
    waves = torch.fft.irfft(spectra, n_fft, dim=1, norm="ortho" if normalized else "backward") * window[:, None]
    squares = (window * window)[None, :, None].repeat(1, 1, frames)
    total = n_fft + hop * (frames - 1)
    start = n_fft // 2 if center else 0
    end = total - (n_fft // 2 if center else 0) if length is None else start + length
    wave, weight = (_add_overlapping(part, total, n_fft, hop) for part in (waves, squares))
    wave = wave[:, start:] / weight[:, start:].clamp(min=1e-30)
    if length is not None:  # what is missing at the end is silence
        wave = torch.nn.functional.pad(wave, (0, length))
    return wave[:, : end - start].reshape([*batch, end - start])


def _add_overlapping(frames: torch.Tensor, length: Untyped, width: int, hop: int) -> torch.Tensor:
    return torch.nn.functional.fold(frames, (1, length), (1, width), stride=(1, hop)).reshape(frames.shape[0], length)


def _make_transposed(plain: Callable[..., torch.Tensor]) -> Callable[..., Untyped]:
    def convolve(
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Untyped = 1,
        padding: Untyped = 0,
        output_padding: Untyped = 0,
        groups: int = 1,
        dilation: Untyped = 1,
    ) -> Untyped:
        paddings = _list_per_dim(output_padding, weight)
        if not any(isinstance(size, torch.SymInt) for size in paddings):
            return NotImplemented
        strides, dilations = _list_per_dim(stride, weight), _list_per_dim(dilation, weight)
        maxima = [max(s, d) - 1 for s, d in zip(strides, dilations, strict=True)]
        result = plain(input, weight, bias, stride, padding, maxima, groups, dilation)
        sizes = list(result.shape)[-len(maxima) :]
        cuts = zip(sizes, maxima, paddings, strict=True)
        for dim, (length, maximum, wished) in enumerate(cuts, result.dim() - len(maxima)):
            result = result.narrow(dim, 0, length - (maximum - wished))
        return result

    return convolve


def _list_per_dim(setting: Untyped, weight: torch.Tensor) -> list[Untyped]:
    """Return a setting for each dim of the image."""
    return list(setting) if isinstance(setting, Sequence) else [setting] * (weight.dim() - 2)


@contextmanager
def keep_causal_flags(on_use: Callable[[], None]) -> Iterator[None]:
    """Write the causal mask of an attention out while a size decides whether it is used.

    torch refuses such a flag while it reads the arguments, before any mode can see the call.
    """
    plain = torch.nn.functional.scaled_dot_product_attention

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: Untyped = False,
        **settings: Untyped,
    ) -> torch.Tensor:
        if not isinstance(is_causal, torch.SymBool):
            return plain(query, key, value, attn_mask, dropout_p, is_causal, **settings)
        on_use()
        if attn_mask is not None:  # torch takes a mask only where the flag is false
            return plain(query, key, value, attn_mask, dropout_p, **settings)
        make_number: Untyped = torch.sym_ite  # untyped
        rows, columns = (torch.arange(tensor.shape[-2], device=query.device) for tensor in (query, key))
        visible = rows[:, None] >= columns * make_number(is_causal, 1, 0)
        return plain(query, key, value, visible, dropout_p, **settings)

    with patch_attribute(torch.nn.functional, "scaled_dot_product_attention", attend):
        yield


_CONVOLUTIONS = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)

_NEWEST = {
    getattr(torch.nn.functional, "linear_cross_entropy", None): statistics.linear_cross_entropy,  # since torch 2.13
}

SUBSTITUTES: dict[Untyped, Callable[..., Untyped]] = {
    torch.take_along_dim: take_along_dim,
    torch.Tensor.take_along_dim: take_along_dim,
    torch.nn.functional.rrelu: rrelu,
    torch.Tensor.data.__get__: read_data,  # type: ignore[attr-defined]
    torch.linspace: linspace,
    torch.kron: kron,
    torch.fft.irfft: irfft,
    torch.fft.irfft2: irfft2,
    torch.fft.irfftn: irfftn,
    torch.istft: istft,
    torch.Tensor.istft: istft,
    torch.mean: mean,
    torch.Tensor.mean: mean,
    torch.cov: statistics.cov,
    torch.Tensor.cov: statistics.cov,
    torch.corrcoef: statistics.corrcoef,
    torch.Tensor.corrcoef: statistics.corrcoef,
    torch.combinations: statistics.combinations,
    torch.linalg.lstsq: statistics.lstsq,
    torch.linalg.matrix_norm: statistics.matrix_norm,
    torch.narrow: statistics.narrow,
    torch.tril_indices: statistics.tril_indices,
    torch.triu_indices: statistics.triu_indices,
    torch.Tensor.narrow: statistics.narrow,
    torch.segment_reduce: statistics.segment_reduce,
    torch.nn.functional.one_hot: statistics.one_hot,
    torch.nn.functional.gaussian_nll_loss: statistics.gaussian_nll_loss,
    torch.tensor_split: tensor_split,
    torch.Tensor.tensor_split: tensor_split,
    **{plain: _make_transposed(plain) for plain in _CONVOLUTIONS},
    **{plain: substitute for plain, substitute in _NEWEST.items() if plain is not None},
}
"""Substitutes by function. They return NotImplemented for calls that the function itself can do."""


class SubstituteMode(TorchFunctionMode):
    """Inside this mode the substitutes are used, and each use is reported."""

    def __init__(self, on_use: Callable[[], None]) -> None:
        super().__init__()
        self._on_use = on_use

    def __torch_function__(
        self, func: Untyped, types: Untyped, args: Sequence[Untyped] = (), kwargs: Untyped = None
    ) -> Untyped:
        substitute = SUBSTITUTES.get(func)
        result = substitute(*args, **(kwargs or {})) if substitute is not None else NotImplemented
        if result is NotImplemented:
            return func(*args, **(kwargs or {}))
        self._on_use()
        return result
