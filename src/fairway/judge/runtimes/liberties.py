"""Run PyTorch with other choices where it promises none, to see what depends on them.

PyTorch does not promise the order of equal elements in a sort, the order in which a sum is taken, and the last place of
functions such as the sigmoid. A file that differs from PyTorch by no more than these choices do is not wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch

from fairway.judge.runtimes.eager import NARROW_DTYPES
from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator
from fairway.judge.runtimes.operator_watch import OperatorWatch
from fairway.torch_internals import tree_map

Dims: TypeAlias = int | Sequence[int] | None

_BOUNDED_FUNCTIONS = (
    "sigmoid",
    "tanh",
    "erf",
    "erfc",
    "_softmax",
    "_log_softmax",
    "silu",
    "gelu",
    "glu",
    "mkldnn_rnn_layer",
    "log1p",
    "expm1",
    "softplus",
    "log_sigmoid_forward",
    "elu",
    "celu",
    "selu",
    "mish",
    "special_ndtri",
    "special_log_ndtr",
    "special_erfcx",
    "special_xlog1py",
    "logaddexp",
    "logaddexp2",
)
"""Functions that runtimes compute to an absolute error at the scale of 1: their small values have no correct digits.
ONNX Runtime's sigmoid(-18) is 0 (pytorch/pytorch#147508). ONNX has no log1p, so exporters write log(1 + x). Its Elu is
exp(x) - 1, while PyTorch uses expm1."""

_IN_PLACE_FUNCTIONS = ("sigmoid", "tanh")
"""Of those: the functions that recurrent layers compute in place when their input is packed."""

_TRANSFORMS = ("_fft_r2c", "_fft_c2c", "_fft_c2r")

_PRODUCT_FUNCTIONS = ("silu", "gelu", "mish", "glu")
"""Of those: products of the input and a bounded function, with an error at the scale of the input."""

_WIDENED_FUNCTIONS = ("sigmoid", "tanh", "_softmax", "silu")
"""Of those: functions with a single ONNX operator. Runtimes widen 16 bits to 32 for it, so small values are exact."""


class StableOrder(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Keeps the order of equal elements in `sort` and `topk`, where PyTorch promises no order.

    ONNX's TopK, which exporters use for both, keeps it too. `used` is true if there was anything to sort.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        if func is torch.ops.aten.sort.default:
            self.used = True
            return _sort_stable(*args, **kwargs)
        if func is torch.ops.aten.topk.default:
            self.used = True
            return _take_stable_top(*args, **kwargs)
        return func(*args, **kwargs)


def _sort_stable(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Item:
    return torch.ops.aten.sort.stable(x, stable=True, dim=dim, descending=descending)


def _take_stable_top(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Item:
    return tuple(result.narrow(dim, 0, k) for result in _sort_stable(x, dim, largest))


class CoarseFunctions(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Makes bounded functions no finer than the last place at 1, or at their input if they multiply it.

    `used` is true if the model calls any.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.used = False
        self._generator = torch.Generator().manual_seed(seed)

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        name = func.overloadpacket.__name__
        in_place = name.endswith("_") and name[:-1] in _IN_PLACE_FUNCTIONS
        if not in_place and name not in _BOUNDED_FUNCTIONS:
            return func(*args, **kwargs)
        self.used = True
        exact = _compute_wide(func, args, kwargs)
        result = func(*args, **kwargs)
        if in_place:
            return args[0].copy_(self._coarsen(args[0], args[0], exact))
        if args[0].element_size() == 2 and name in _WIDENED_FUNCTIONS:
            return result
        if name in _PRODUCT_FUNCTIONS and result.element_size() > 2:
            return self._coarsen(result, _find_factor(name, *args), exact)
        return tree_map(lambda item: self._coarsen(item, item, exact), result)

    def _coarsen(self, item: Item, scale: torch.Tensor, exact: torch.Tensor | None) -> Item:
        """Move a result by the last place of `scale`, or of 1 if `scale` is smaller.

        Results that are exact at the scale of 1, such as tanh(0) and elu(2), do not move: decisions about them are
        certain.
        """
        if not isinstance(item, torch.Tensor) or not item.is_floating_point():
            return item
        eps = torch.finfo(item.dtype).eps
        signs = torch.randint(0, 2, item.shape, generator=self._generator) * 2 - 1
        moved = (item + signs * eps * scale.abs().clamp(min=1)).to(item.dtype)
        if exact is None or exact.shape != item.shape:
            return moved
        return torch.where((item.double() == exact) & (exact.remainder(eps) == 0), item, moved)


class PlainArithmetic(CoarseFunctions):  # type: ignore[no-untyped-call]  # as above
    """Makes bounded functions coarse, and takes sums one element after the other in float32.

    PyTorch sums in a tree and accumulates `cumsum` in float64, so its own error says little about another engine's.
    `used` is true if anything was computed differently.
    """

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        result = super().watch(func, args, kwargs)
        name = func.overloadpacket.__name__
        if name in _TRANSFORMS:
            self.used = True
            return self._resum(result, args[0], args[1])
        if name in _PLAIN_SUMS and _is_narrow(args[0]) and _is_narrow(result) and args[0].numel():
            self.used = True
            return _PLAIN_SUMS[name](result, *args, **kwargs).reshape(result.shape).to(result.dtype)
        if name in _PLAIN_NORMS and _is_narrow(args[0]) and args[0].numel():
            normed = _PLAIN_NORMS[name](*args, **kwargs)
            self.used = self.used or normed is not None
            return result if normed is None else (normed.to(result[0].dtype), *result[1:])
        return result

    def _resum(self, result: torch.Tensor, x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """Move a Fourier transform by the error of a plain sum of rounded terms at each frequency.

        ONNX Runtime computes such a sum for lengths that are not a power of two. PyTorch is much more exact there.
        """
        terms = math.prod(x.shape[dim] for dim in dims)
        error = torch.finfo(result.dtype).eps * math.sqrt(terms) * x.abs().sum(tuple(dims), keepdim=True)
        parts = torch.view_as_real(result) if result.is_complex() else result[..., None]
        signs = torch.randint(0, 2, parts.shape, generator=self._generator) * 2 - 1
        moved = parts + (signs * error[..., None]).to(parts.dtype)
        return torch.view_as_complex(moved) if result.is_complex() else moved[..., 0]


def _compute_wide(func: Operator, args: Items, kwargs: NamedItems) -> torch.Tensor | None:
    """Return the result in float64 from the same arguments, or None if there are several or it is float64 already."""
    if not _is_narrow(args[0]):
        return None
    try:
        result = func(*tree_map(_widen, tuple(args)), **tree_map(_widen, dict(kwargs)))
    except Exception:  # the operator has no float64, so none of its results counts as exact
        return None
    return result if isinstance(result, torch.Tensor) else None


def _widen(item: Item) -> Item:
    return item.double() if _is_narrow(item) else item


def _find_factor(name: str, x: torch.Tensor, *rest: Item) -> torch.Tensor:
    """Return the factor of the bounded function: the input, or its first half."""
    return x.chunk(2, rest[0] if rest else -1)[0] if name == "glu" else x


def _is_narrow(item: Item) -> bool:
    return isinstance(item, torch.Tensor) and item.dtype in NARROW_DTYPES


def _flatten_summed(x: torch.Tensor, dims: Dims) -> torch.Tensor:
    """Return the elements with all summed axes merged into the last one. All axes are summed if no dims are given."""
    chosen = [dims] if isinstance(dims, int) else list(dims or range(x.dim()))
    chosen = [d % max(x.dim(), 1) for d in chosen] if x.dim() else []
    kept = [d for d in range(x.dim()) if d not in chosen]
    return x.permute(*kept, *chosen).reshape(*(x.shape[d] for d in kept), -1).float()


def _accumulate(rows: torch.Tensor) -> torch.Tensor:
    """Return running sums. numpy adds one element after the other, in the array's own dtype."""
    return torch.from_numpy(np.add.accumulate(rows.detach().contiguous().numpy(), axis=-1))


def _compute_sum(result: torch.Tensor, x: torch.Tensor, dims: Dims = None, *rest: Item, **named: Item) -> torch.Tensor:
    return _accumulate(_flatten_summed(x, dims))[..., -1]


def _compute_mean(result: torch.Tensor, x: torch.Tensor, dims: Dims = None, *rest: Item, **named: Item) -> torch.Tensor:
    rows = _flatten_summed(x, dims)
    return _accumulate(rows)[..., -1] / rows.shape[-1]


def _compute_var(result: torch.Tensor, x: torch.Tensor, dims: Dims = None, *rest: Item, **named: Item) -> torch.Tensor:
    rows = _flatten_summed(x, dims)
    correction = named.get("correction")
    count = rows.shape[-1]
    centered = rows - _accumulate(rows)[..., -1:] / count
    return _accumulate(centered * centered)[..., -1] / max(count - (1 if correction is None else correction), 0)


def _normalize(rows: torch.Tensor, eps: float) -> torch.Tensor:
    """Return rows minus their mean, divided by their deviation, both from sums in plain order."""
    count = rows.shape[-1]
    centered = rows - _accumulate(rows)[..., -1:] / count
    return centered * (_accumulate(centered * centered)[..., -1:] / count + eps).rsqrt()


def _apply_weight(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    """Apply weight and bias along the second axis."""
    shape = [1, -1, *[1] * (x.dim() - 2)]
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _compute_group_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, batch: int, *rest: Item
) -> torch.Tensor:
    *_, groups, eps = rest
    normed = _normalize(x.reshape(batch * groups, -1).float(), eps)
    return _apply_weight(normed.reshape(x.shape), weight, bias)


def _compute_layer_norm(
    x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    normed = _normalize(x.reshape(*x.shape[: x.dim() - len(shape)], -1).float(), eps).reshape(x.shape)
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def _compute_batch_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, *rest: Item
) -> torch.Tensor | None:
    """Normalize by the batch's own statistics, or return None for running ones, which sum nothing."""
    _, _, training, _, eps = rest
    if not training:
        return None
    turned = x.transpose(0, 1)
    normed = _normalize(turned.reshape(len(turned), -1).float(), eps).reshape(turned.shape).transpose(0, 1)
    return _apply_weight(normed, weight, bias)


def _compute_norm(
    result: torch.Tensor, x: torch.Tensor, ord: float | str = 2, dims: Dims = None, *rest: Item, **named: Item
) -> Item:
    rows = _flatten_summed(x, dims)
    return _accumulate(rows * rows)[..., -1].sqrt() if ord == 2 else result


def _compute_logsumexp(result: torch.Tensor, x: torch.Tensor, dims: Dims, *rest: Item, **named: Item) -> torch.Tensor:
    rows = _flatten_summed(x, dims)
    top = rows.amax(-1, keepdim=True)
    return _accumulate(torch.exp(rows - top))[..., -1].log() + top.squeeze(-1)


def _compute_cumsum(result: torch.Tensor, x: torch.Tensor, dim: int, *rest: Item, **named: Item) -> torch.Tensor:
    return _accumulate(x.movedim(dim, -1).float()).movedim(-1, dim) if x.dim() else result


_PLAIN_SUMS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": _compute_sum,
    "mean": _compute_mean,
    "var": _compute_var,
    "linalg_vector_norm": _compute_norm,
    "logsumexp": _compute_logsumexp,
    "cumsum": _compute_cumsum,
}

_PLAIN_NORMS: dict[str, Callable[..., torch.Tensor | None]] = {
    "native_group_norm": _compute_group_norm,
    "native_layer_norm": _compute_layer_norm,
    "native_batch_norm": _compute_batch_norm,
}
