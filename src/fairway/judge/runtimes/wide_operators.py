"""Operators that the truth does not simply run in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch  # seen to work in torch 2.9-2.13; no public counterpart

from fairway.judge.runtimes.wide_tensors import WIDE_DTYPES, Wide

_aten = torch.ops.aten

COMPARISONS = frozenset({_aten.eq, _aten.ne, _aten.lt, _aten.le, _aten.gt, _aten.ge})

OF_THE_DTYPE = frozenset(
    {
        _aten.view.dtype,
        _aten.nextafter.default,
        _aten.quantize_per_tensor.default,
        _aten.quantize_per_channel.default,
    }
)
"""Operators about the bits of a dtype. They run in the narrow one."""

RANDOM_OPERATORS = frozenset(
    {
        "bernoulli",
        "binomial",
        "cauchy",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "normal",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "random",
        "randperm",
        "uniform",
        "_sample_dirichlet",
        "_standard_gamma",
    }
)
"""Operators whose numbers differ between dtypes, from the same seed. They run in the narrow one."""

CHANGE_SHAPE = frozenset(
    {
        _aten.unsqueeze_,
        _aten.squeeze_,
        _aten.t_,
        _aten.transpose_,
        _aten.swapaxes_,
        _aten.swapdims_,
    }
)
"""Operators that change a tensor's sizes and strides in place."""


def round_scalar(number: float, dtype: torch.dtype) -> float:
    """Return the number as a comparison with a tensor of `dtype` reads it."""
    return torch.tensor(number, dtype=dtype).item() if dtype in WIDE_DTYPES else number


def is_same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both are the whole of one piece of memory in the same order, such as a result and its flat view."""
    if not isinstance(one, Wide) or not isinstance(other, Wide):
        return False
    first, second = one.numbers, other.numbers
    in_order = first.is_contiguous() and second.is_contiguous() and first.dtype == second.dtype
    return in_order and first.numel() == second.numel() > 0 and first.data_ptr() == second.data_ptr()


def adopt_shape(wide: Wide) -> None:
    """Give a tensor the sizes and strides that its numbers have by now."""
    numbers = wide.numbers
    with no_dispatch():
        wide.as_strided_(numbers.shape, numbers.stride(), numbers.storage_offset())


def multiply_groups(
    rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, bias: torch.Tensor | None = None, dtype: Any = None
) -> torch.Tensor:
    """Multiply rows with one of several matrices each: `torch._grouped_mm`, which has no float64 kernel.

    `ends` are the ends of the groups. Rows after the last group are zero here; torch leaves them undefined.
    """
    if rows.dim() != 2 or weights.dim() != 3 or bias is not None:
        raise NotImplementedError("_grouped_mm in float64 supports rows [n, k] and matrices [g, k, m] only")
    result = rows.new_zeros(rows.shape[0], weights.shape[2])
    for weight, (start, end) in zip(weights, pairwise([0, *ends.tolist()]), strict=True):
        result[start:end] = rows[start:end] @ weight
    return result
