"""Calls that torch.onnx translates wrongly, written in torch and replaced in torch.export's program.

Each entry says which calls are wrong. The others stay as they are, and so does a program without such a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from fairway.convert.translations import error_functions
from fairway.convert.translations.antialiased_resize import make_upsampling, make_upsampling_by_factors
from fairway.torch_internals import (
    OpOverload,
    Untyped,
    aten_native_batch_norm_legit,
    aten_native_batch_norm_legit_functional,
    aten_upsample_bicubic2d_aa,
    aten_upsample_bicubic2d_aa_vec,
    aten_upsample_bilinear2d_aa,
    aten_upsample_bilinear2d_aa_vec,
)

Arguments = dict[str, Untyped]
"""The arguments of one call, by name."""


class Replacement(NamedTuple):
    """A function of torch, the defect in torch.onnx, and the calls that have it."""

    function: Callable[..., Untyped]
    reason: str
    is_present: Callable[[Arguments], bool] = lambda arguments: True


def divide_by_override(
    input: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """Average over windows without padding, and correct the divisor."""
    rank = len(kernel_size)
    strides = list(stride) or list(kernel_size)
    paddings = list(padding) * rank if len(padding) == 1 else list(padding)
    borders: list[Untyped] = []
    least: Untyped = torch.sym_max  # untyped
    settings = zip(input.shape[-rank:], kernel_size, strides * (rank // len(strides)), paddings, strict=True)
    for size, kernel, step, around in reversed([*settings]):
        extra: Untyped = 0
        if ceil_mode:  # the last window may begin in the input and end beyond the padding
            count = -((kernel - size - 2 * around) // step)
            count = count - ((count * step) >= size + around)
            extra = count * step + kernel - size - 2 * around
            extra = max(extra, 0) if isinstance(extra, int) else least(extra, 0)
        borders += [around, around + extra]
    pool: Untyped = torch.nn.functional.avg_pool2d if rank == 2 else torch.nn.functional.avg_pool3d
    pooled: torch.Tensor = pool(torch.nn.functional.pad(input, borders), list(kernel_size), strides)
    assert divisor_override is not None
    return pooled * (math.prod(kernel_size) / divisor_override)


def normalize_batch(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalize by the mean and the variance of the batch itself."""
    dims = [d for d in range(input.dim()) if d != 1]
    shape = [1, -1, *[1] * (input.dim() - 2)]
    mean = input.mean(dims)
    centered = input - mean.reshape(shape)
    inverse = torch.rsqrt((centered * centered).mean(dims) + eps)
    result = centered * inverse.reshape(shape)
    if weight is not None:
        result = result * weight.reshape(shape)
    if bias is not None:
        result = result + bias.reshape(shape)
    return result, mean, inverse


def normalize_functionally(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Also return the new running statistics. The running variance is that of a sample."""
    result, mean, inverse = normalize_batch(input, weight, bias, None, None, training, momentum, eps)
    count = input.numel() // input.shape[1]
    variance = (1 / (inverse * inverse) - eps) * (count / (count - 1))
    new_mean = momentum * mean + (1 - momentum) * running_mean
    new_variance = momentum * variance + (1 - momentum) * running_var
    return result, mean, inverse, new_mean, new_variance


def normalize_in_training(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> torch.Tensor:
    return normalize_batch(input, weight, bias, None, None, training, momentum, eps)[0]


def _cut_negative(input: torch.Tensor, padding: Sequence[int]) -> tuple[torch.Tensor, list[int]]:
    """Cut where the padding is negative, and return what is left of the padding."""
    for place in range(len(padding) // 2):
        before, after = padding[2 * place : 2 * place + 2]
        dim = input.dim() - 1 - place
        start, end = max(-before, 0), input.shape[dim] - max(-after, 0)
        input = input.narrow(dim, start, end - start)
    return input, [max(size, 0) for size in padding]


def _make_padded(plain: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def pad(input: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
        return plain(*_cut_negative(input, padding))

    return pad


def pad_after_cutting(
    self: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> torch.Tensor:
    if mode == "replicate":
        return _replicate(self, pad)
    cut, padding = _cut_negative(self, pad)
    return torch.nn.functional.pad(cut, padding, mode, value)


def _replicate(input: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """Select by clamped indices, which also works if one side cuts more than there is."""
    for place in range(len(padding) // 2):
        before, after = padding[2 * place : 2 * place + 2]
        dim = input.dim() - 1 - place
        size = input.shape[dim]
        places = torch.arange(size + before + after, device=input.device) - before
        input = input.index_select(dim, places.clamp(0, size - 1))
    return input


def sum_products(equation: str, operands: Sequence[torch.Tensor], path: Untyped = None) -> torch.Tensor:
    """Give the dims of all ellipses the same number, and sum over them if the output has none."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    hidden = [operand.dim() - len(term.replace("...", "")) for term, operand in zip(terms, operands, strict=True)]
    most = max(count for term, count in zip(terms, hidden, strict=True) if "..." in term)
    widened = []
    for term, operand, count in zip(terms, operands, hidden, strict=True):
        for _ in range(most - count if "..." in term else 0):
            operand = operand.unsqueeze(term.index("..."))
        widened.append(operand)
    output = equation.replace(" ", "").partition("->")[2]
    if "->" in equation and "..." not in output:
        spread: torch.Tensor = torch.ops.aten.einsum(f"{','.join(terms)}->...{output}", widened)
        return spread.sum(list(range(most))) if most else spread
    result: torch.Tensor = torch.ops.aten.einsum(equation, widened)
    return result


def _has_uneven_ellipses(arguments: Arguments) -> bool:
    terms = arguments["equation"].replace(" ", "").partition("->")[0].split(",")
    ranks = [_get_value(operand).dim() for operand in arguments["tensors"]]
    pairs = zip(terms, ranks, strict=True)
    hidden = {rank - len(term.replace("...", "")) for term, rank in pairs if "..." in term}
    return len(hidden) > 1 or (bool(hidden) and "->" in arguments["equation"] and "..." not in _get_output(arguments))


def _get_output(arguments: Arguments) -> str:
    output: str = arguments["equation"].partition("->")[2]
    return output


def reduce_to_largest(self: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> torch.Tensor:
    return torch.amax(self, list(range(self.dim())), keepdim) if self.dim() else self.clone()


def reduce_to_smallest(self: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> torch.Tensor:
    return torch.amin(self, list(range(self.dim())), keepdim) if self.dim() else self.clone()


def multiply_scalar(
    self: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    if dtype is None and not self.is_floating_point():
        dtype = torch.int64
    return self.clone() if dtype is None else self.to(dtype)


def measure_scalar(
    self: torch.Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    value = self if dtype is None else self.to(dtype)
    return (value != 0).to(value.dtype) if ord == 0 else value.abs()


def measure_all(
    self: torch.Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    if not self.dim():
        return measure_scalar(self, ord, dim, keepdim, dtype=dtype)
    result: torch.Tensor = torch.ops.aten.linalg_vector_norm(self, ord, list(range(self.dim())), keepdim, dtype=dtype)
    return result


def measure_any(
    self: torch.Tensor,
    ord: float | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    if ord is None or self.dim() < 2:
        return measure_all(self, 2 if ord is None else ord, None, keepdim, dtype=dtype)
    result: torch.Tensor = torch.linalg.matrix_norm(self, ord, (-2, -1), keepdim, dtype=dtype)
    return result


def make_identities(self: torch.Tensor, n: int) -> torch.Tensor:
    return torch.eye(self.shape[-1], dtype=self.dtype, device=self.device).expand(self.shape).clone()


def take_scalar(
    self: torch.Tensor, k: Untyped, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    return self.clone(), torch.zeros_like(self, dtype=torch.int64)


def _is_scalar(arguments: Arguments) -> bool:
    return not _get_value(arguments.get("self")).dim()


def _get_value(argument: Untyped) -> Untyped:
    """Return a tensor, also from a node of a program."""
    return argument if isinstance(argument, torch.Tensor) else argument.meta["val"]


def _has_negative_border(arguments: Arguments) -> bool:
    return arguments.get("mode", "constant") != "constant" and any(
        isinstance(size, int) and size < 0 for size in arguments["pad"]
    )


def _has_negative(arguments: Arguments) -> bool:
    return any(isinstance(size, int) and size < 0 for size in arguments["padding"])


def _is_training(arguments: Arguments) -> bool:
    return bool(arguments["training"]) and arguments.get("running_mean") is not None


def _is_scaled(arguments: Arguments) -> bool:
    scales = (arguments.get("scales_h"), arguments.get("scales_w"))
    has_scales = any(scale is not None for scale in scales) or arguments.get("scale_factors") is not None
    return bool(arguments["align_corners"]) or has_scales


_ATEN = torch.ops.aten
_CORNERS = "align_corners and scales are left out"
_ALL_DIMS = "a call without dims, which means all, is refused"
_NO_DIMS = "a tensor without dims is refused by the runtime"
_TRAINING = "in training, the running mean and variance are used"

REPLACEMENTS: dict[OpOverload, Replacement] = {
    **{
        operator: Replacement(
            divide_by_override,
            "divisor_override is left out",
            lambda arguments: arguments.get("divisor_override") is not None,
        )
        for operator in (_ATEN.avg_pool2d.default, _ATEN.avg_pool3d.default)
    },
    _ATEN.native_batch_norm.default: Replacement(normalize_batch, _TRAINING, _is_training),
    # What torch makes of the others, which write into the running statistics.
    aten_native_batch_norm_legit_functional: Replacement(normalize_functionally, _TRAINING, _is_training),
    aten_native_batch_norm_legit: Replacement(normalize_batch, _TRAINING, _is_training),
    **{
        getattr(_ATEN, f"{name}{n}d").default: Replacement(
            _make_padded(getattr(_ATEN, f"{name}{n}d").default),
            "a negative padding cuts after padding instead of before",
            _has_negative,
        )
        for name in ("replication_pad", "reflection_pad")
        for n in (1, 2, 3)
    },
    _ATEN.batch_norm.default: Replacement(normalize_in_training, _TRAINING, _is_training),
    _ATEN.pad.default: Replacement(
        pad_after_cutting, "a negative padding cuts after padding instead of before", _has_negative_border
    ),
    _ATEN.amax.default: Replacement(reduce_to_largest, _ALL_DIMS, lambda arguments: not arguments.get("dim")),
    _ATEN.amin.default: Replacement(reduce_to_smallest, _ALL_DIMS, lambda arguments: not arguments.get("dim")),
    _ATEN.prod.dim_int: Replacement(multiply_scalar, _NO_DIMS, _is_scalar),
    _ATEN.linalg_vector_norm.default: Replacement(
        measure_all,
        "a tensor without dims is refused by the runtime, and keepdim is left out of a norm over all dims",
        lambda arguments: _is_scalar(arguments) or (not arguments.get("dim") and bool(arguments.get("keepdim"))),
    ),
    _ATEN.linalg_norm.default: Replacement(
        measure_any,
        "keepdim is left out of a norm over all dims",
        lambda arguments: arguments.get("dim") is None and bool(arguments.get("keepdim")),
    ),
    _ATEN.linalg_matrix_power.default: Replacement(
        make_identities, "the power 0 of a batch is one matrix", lambda arguments: arguments["n"] == 0
    ),
    _ATEN.matrix_power.default: Replacement(
        make_identities, "the power 0 of a batch is one matrix", lambda arguments: arguments["n"] == 0
    ),
    _ATEN.topk.default: Replacement(take_scalar, _NO_DIMS, _is_scalar),
    _ATEN.einsum.default: Replacement(
        sum_products, "ellipses of different ranks are refused by the runtime", _has_uneven_ellipses
    ),
    aten_upsample_bilinear2d_aa: Replacement(make_upsampling(is_cubic=False), _CORNERS, _is_scaled),
    aten_upsample_bicubic2d_aa: Replacement(make_upsampling(is_cubic=True), _CORNERS, _is_scaled),
    aten_upsample_bilinear2d_aa_vec: Replacement(make_upsampling_by_factors(False), _CORNERS, _is_scaled),
    aten_upsample_bicubic2d_aa_vec: Replacement(make_upsampling_by_factors(True), _CORNERS, _is_scaled),
    **{
        operator: Replacement(function, "the result is infinity times zero far from zero")
        for operator, function in error_functions.DECOMPOSITIONS.items()
    },
}
"""Replacements by the operator."""
