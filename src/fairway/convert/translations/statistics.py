"""Covariances, combinations, least squares, segments and others that cannot be captured as they are.

torch reads values of tensors in them as plain numbers, or has no shapes for their results. They are computed by others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch

from fairway.convert.translations.matrix_functions import lstsq as solve_least_squares
from fairway.torch_internals import Untyped, check


def cov(
    input: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    weights = _multiply(fweights, aweights)
    if weights is None:
        count: Untyped = rows.shape[1]
        centered = rows - rows.mean(1, keepdim=True)
        scaled, divisor = centered, max(count - correction, 0) if isinstance(count, int) else count - correction
    else:
        weights = weights.to(rows.dtype.to_real() if rows.is_complex() else rows.dtype)
        total = weights.sum()
        centered = rows - (rows * weights).sum(1, keepdim=True) / total
        scaled = centered * weights
        both = total if aweights is None else (weights * aweights).sum() / total
        divisor = (total - correction if aweights is None else total - correction * both).clamp(min=0)
    result = scaled @ centered.mH / divisor
    return result.squeeze() if input.dim() < 2 else result


def _multiply(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first * second


def corrcoef(input: torch.Tensor) -> torch.Tensor:
    if input.dim() < 2:
        covariance = cov(input)
        return covariance / covariance
    covariance = cov(input)
    roots = torch.sqrt(torch.real(covariance.diagonal()))
    result = covariance / roots[:, None] / roots[None, :]
    if result.is_complex():
        return torch.complex(result.real.clamp(-1, 1), result.imag.clamp(-1, 1))
    return result.clamp(-1, 1)


def combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> Untyped:
    count: Untyped = input.shape[0]
    if not isinstance(count, int) or r == 0:
        return NotImplemented
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = [*choose(range(count), r)]
    if not places:
        return NotImplemented
    return torch.stack([input[list(column)] for column in zip(*places, strict=True)], 1)


def lstsq(input: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None) -> Untyped:
    if input.is_complex():
        return NotImplemented
    named: Untyped = torch.return_types  # has no types for those of linalg
    return named.linalg_lstsq(solve_least_squares(input, b, rcond, driver=driver))


def matrix_norm(
    A: torch.Tensor,
    ord: Untyped = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Untyped = None,
) -> Untyped:
    """Compute the norms that are made of singular values. torch fixes a dynamic batch on its way to them."""
    if ord not in (2, -2, "nuc") or out is not None:
        return NotImplemented
    values = torch.linalg.svdvals((A if dtype is None else A.to(dtype)).movedim(dim, (-2, -1)))
    result = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    return result[..., None, None].movedim((-2, -1), dim) if keepdim else result


def triu_indices(row: Untyped, col: Untyped, offset: int = 0, **settings: Untyped) -> Untyped:
    return _list_places(row, col, settings, lambda i, j: j - i >= offset)


def tril_indices(row: Untyped, col: Untyped, offset: int = 0, **settings: Untyped) -> Untyped:
    return _list_places(row, col, settings, lambda i, j: j - i <= offset)


def _list_places(
    rows: Untyped, columns: Untyped, settings: dict[str, Untyped], is_inside: Callable[[int, int], bool]
) -> Untyped:
    """Return indices as a constant if none, or fewer than all, are inside: torch.onnx refuses empty parts."""
    if not isinstance(rows, int) or not isinstance(columns, int):
        return NotImplemented
    places = [(i, j) for i in range(rows) for j in range(columns) if is_inside(i, j)]
    dtype = settings.get("dtype") or torch.int64
    return torch.tensor([list(axis) for axis in zip(*places, strict=True)] or [[], []], dtype=dtype)


def narrow(input: torch.Tensor, dim: int, start: Untyped, length: Untyped) -> Untyped:
    """Select by indices if the start is a tensor. A negative one counts from the end."""
    if not isinstance(start, torch.Tensor):
        return NotImplemented
    first = torch.where(start < 0, start + input.shape[dim], start)
    return input.index_select(dim, first + torch.arange(length, device=input.device))


def linear_cross_entropy(
    input: torch.Tensor,
    linear_weight: torch.Tensor,
    target: torch.Tensor,
    *,
    options: Untyped = None,
    **settings: Untyped,
) -> Untyped:
    """Leave the options out: they ask for pieces that take less memory in training."""
    if options is None:
        return NotImplemented
    return torch.nn.functional.linear_cross_entropy(input, linear_weight, target, **settings)


def one_hot(tensor: torch.Tensor, num_classes: Untyped = -1) -> Untyped:
    """Compare with as many classes as the largest value asks for, or as a value says."""
    if isinstance(num_classes, int) and num_classes != -1:
        return NotImplemented
    count: Untyped = (tensor.max() + 1).item() if isinstance(num_classes, int) else num_classes
    check(count >= 1)
    return (tensor[..., None] == torch.arange(count, device=tensor.device)).to(torch.int64)


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: Untyped,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Untyped:
    """Leave out the check for negative variances."""
    if isinstance(var, float):
        var = var * torch.ones_like(input)
    elif var.dim() != input.dim() and list(var.shape) == list(input.shape)[:-1]:
        var = var[..., None]
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def segment_reduce(
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Untyped:
    """Reduce the elements of each segment, with the others as neutral numbers."""
    if lengths is not None:
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    elif offsets is not None:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    else:
        return NotImplemented
    axis %= data.dim()
    places = torch.arange(data.shape[axis], device=data.device)
    inside = (places >= starts[..., None]) & (places < ends[..., None])
    inside = inside.reshape([*inside.shape, *[1] * (data.dim() - axis - 1)])
    spread = torch.where(inside, data.unsqueeze(axis), _NEUTRAL[reduce])
    if reduce in ("max", "min"):
        result = spread.amax(axis + 1) if reduce == "max" else spread.amin(axis + 1)
        limit = torch.maximum if reduce == "max" else torch.minimum
        return result if initial is None else limit(result, torch.full_like(result, initial))
    result = spread.prod(axis + 1) if reduce == "prod" else spread.sum(axis + 1)
    if initial is not None:
        result = result * initial if reduce == "prod" else result + initial
    if reduce != "mean":
        return result
    count = inside.sum(axis + 1).to(result.dtype)
    missing = float("nan") if initial is None else initial
    return torch.where(count == 0, missing, result / count.clamp(min=1))
