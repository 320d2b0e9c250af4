"""Operators with special rules in the run in float64."""

from __future__ import annotations

from itertools import pairwise

import torch

from fairway.judge.runtimes.wide_tensors import WIDE_DTYPES, Wide
from fairway.torch_internals import no_dispatch

_aten = torch.ops.aten

COMPARISONS = frozenset({_aten.eq, _aten.ne, _aten.lt, _aten.le, _aten.gt, _aten.ge})

BIT_OPERATORS = frozenset(
    {
        _aten.view.dtype,
        _aten.nextafter.default,
        _aten.quantize_per_tensor.default,
        _aten.quantize_per_channel.default,
    }
)
"""Operators that depend on the bits of a dtype. They run in the narrow dtype."""

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
"""Operators that draw other numbers in another dtype from the same seed. They run in the narrow dtype."""

SHAPE_CHANGING_OPERATORS = frozenset(
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
    """Return the number rounded as in a comparison with a tensor of `dtype`."""
    return torch.tensor(number, dtype=dtype).item() if dtype in WIDE_DTYPES else number


def is_same_memory(first_tensor: torch.Tensor, second_tensor: torch.Tensor) -> bool:
    """Return whether both are all of the same memory in the same order, such as a result and its flat view."""
    if not isinstance(first_tensor, Wide) or not isinstance(second_tensor, Wide):
        return False
    first, second = first_tensor.numbers, second_tensor.numbers
    in_order = first.is_contiguous() and second.is_contiguous() and first.dtype == second.dtype
    return in_order and first.numel() == second.numel() > 0 and first.data_ptr() == second.data_ptr()


def adopt_shape(wide: Wide) -> None:
    """Give a tensor the current sizes and strides of its numbers."""
    numbers = wide.numbers
    with no_dispatch():
        wide.as_strided_(numbers.shape, numbers.stride(), numbers.storage_offset())


def multiply_groups(
    rows: torch.Tensor,
    weights: torch.Tensor,
    ends: torch.Tensor,
    bias: torch.Tensor | None = None,
    dtype: object = None,
) -> torch.Tensor:
    """Multiply rows with one of several matrices each: `aten::_grouped_mm`, which has no float64 kernel.

    `ends` are the ends of the groups. Rows after the last group are zero here. torch leaves them undefined.
    """
    if rows.dim() != 2 or weights.dim() != 3 or bias is not None:
        raise NotImplementedError("_grouped_mm in float64 supports rows [n, k] and matrices [g, k, m] only")
    result = rows.new_zeros(rows.shape[0], weights.shape[2])
    for weight, (start, end) in zip(weights, pairwise([0, *ends.tolist()]), strict=True):
        result[start:end] = rows[start:end] @ weight
    return result
