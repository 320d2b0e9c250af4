"""PyTorch with those choices made differently that it leaves open, to see what depends on them.

The order of equal elements in a sort, the order in which a sum is taken, and the last place of functions such as the
sigmoid are not promised. A file that differs from PyTorch by no more than these do is not wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map  # seen to work in torch 2.9–2.13; no public counterpart

from fairway.judge.runtimes.eager import NARROW
from fairway.judge.runtimes.operator_watch import Watch

_BOUNDED = (
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
ONNX Runtime's sigmoid(-18) is 0 (pytorch/pytorch#147508), and ONNX has no log1p: exporters write log(1 + x);
its Elu is exp(x) - 1, where PyTorch takes expm1."""

_IN_PLACE = ("sigmoid", "tanh")
"""Of those: what recurrent layers compute in place when their input is packed."""

_TRANSFORMS = ("_fft_r2c", "_fft_c2c", "_fft_c2r")

_PRODUCTS = ("silu", "gelu", "mish", "glu")
"""Of those: the input times a bounded function, so that the error is at the scale of the input."""

_WIDENED = ("sigmoid", "tanh", "_softmax", "silu")
"""Of those: one operator in ONNX too, so that 16 bits are widened to 32 for it, and its tail is as fine as any."""


class StableOrder(Watch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Equal elements are sorted as they stand, in `sort` and `topk`, where PyTorch leaves their order open.

    ONNX's TopK, which exporters use for both, does it so. `used` tells whether there was anything to sort.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func is torch.ops.aten.sort.default:
            self.used = True
            return _stable(*args, **kwargs)
        if func is torch.ops.aten.topk.default:
            self.used = True
            return _stable_top(*args, **kwargs)
        return func(*args, **kwargs)


def _stable(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    return torch.ops.aten.sort.stable(x, stable=True, dim=dim, descending=descending)


def _stable_top(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return tuple(one.narrow(dim, 0, k) for one in _stable(x, dim, largest))


class CoarseFunctions(Watch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Bounded functions are no finer than the last place at 1, or at their input if they multiply it.

    `used` is true if the model has any.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.used = False
        self._generator = torch.Generator().manual_seed(seed)

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name = func.overloadpacket.__name__
        in_place = name.endswith("_") and name[:-1] in _IN_PLACE
        if not in_place and name not in _BOUNDED:
            return func(*args, **kwargs)
        self.used = True
        exact = _compute_wide(func, args, kwargs)
        result = func(*args, **kwargs)
        if in_place:
            return args[0].copy_(self._coarse(args[0], args[0], exact))
        if args[0].element_size() == 2 and name in _WIDENED:
            return result
        if name in _PRODUCTS and result.element_size() > 2:
            return self._coarse(result, _factor(name, *args), exact)
        return tree_map(lambda item: self._coarse(item, item, exact), result)

    def _coarse(self, item: Any, scale: torch.Tensor, exact: torch.Tensor | None) -> Any:
        """Moved by the last place of `scale`, or of 1 if that is smaller.

        Results that are exact at the scale of 1 stay, such as tanh(0) and elu(2): decisions about them are certain.
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
    """Bounded functions are coarse, and sums are taken one element after the other in float32.

    PyTorch sums in a tree and accumulates `cumsum` in float64, so its own error says little about another engine's.
    `used` is true if anything was computed differently.
    """

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = super().watch(func, args, kwargs)
        name = func.overloadpacket.__name__
        if name in _TRANSFORMS:
            self.used = True
            return self._resummed(result, args[0], args[1])
        if name in _SUMS and _narrow(args[0]) and _narrow(result) and args[0].numel():
            self.used = True
            return _SUMS[name](result, *args, **kwargs).reshape(result.shape).to(result.dtype)
        if name in _NORMS and _narrow(args[0]) and args[0].numel():
            normed = _NORMS[name](*args, **kwargs)
            self.used = self.used or normed is not None
            return result if normed is None else (normed.to(result[0].dtype), *result[1:])
        return result

    def _resummed(self, result: torch.Tensor, x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """A Fourier transform is a sum over its dims at each frequency, of terms that are rounded themselves.

        ONNX Runtime takes it so for lengths that are no power of two, where PyTorch does much better.
        """
        terms = math.prod(x.shape[dim] for dim in dims)
        error = torch.finfo(result.dtype).eps * math.sqrt(terms) * x.abs().sum(tuple(dims), keepdim=True)
        parts = torch.view_as_real(result) if result.is_complex() else result[..., None]
        signs = torch.randint(0, 2, parts.shape, generator=self._generator) * 2 - 1
        moved = parts + (signs * error[..., None]).to(parts.dtype)
        return torch.view_as_complex(moved) if result.is_complex() else moved[..., 0]


def _compute_wide(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """The result in float64 from the same arguments; None if it has several, or is in float64 already."""
    if not _narrow(args[0]):
        return None
    try:
        result = func(*tree_map(_widen, tuple(args)), **tree_map(_widen, dict(kwargs)))
    except Exception:  # an operator that has no float64: nothing it gives counts as exact
        return None
    return result if isinstance(result, torch.Tensor) else None


def _widen(item: Any) -> Any:
    return item.double() if _narrow(item) else item


def _factor(name: str, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """What the bounded function is multiplied with: the input, or its first half."""
    return x.chunk(2, rest[0] if rest else -1)[0] if name == "glu" else x


def _narrow(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dtype in NARROW


def _rows(x: torch.Tensor, dims: Any) -> torch.Tensor:
    """The elements that are summed as the last axis; all of them where no dims are given."""
    chosen = [dims] if isinstance(dims, int) else list(dims or range(x.dim()))
    chosen = [d % max(x.dim(), 1) for d in chosen] if x.dim() else []
    kept = [d for d in range(x.dim()) if d not in chosen]
    return x.permute(*kept, *chosen).reshape(*(x.shape[d] for d in kept), -1).float()


def _running(rows: torch.Tensor) -> torch.Tensor:
    """numpy accumulates one after the other, in the array's own dtype."""
    return torch.from_numpy(np.add.accumulate(rows.detach().contiguous().numpy(), axis=-1))


def _sum(result: torch.Tensor, x: torch.Tensor, dims: Any = None, *rest: Any, **named: Any) -> torch.Tensor:
    return _running(_rows(x, dims))[..., -1]


def _mean(result: torch.Tensor, x: torch.Tensor, dims: Any = None, *rest: Any, **named: Any) -> torch.Tensor:
    rows = _rows(x, dims)
    return _running(rows)[..., -1] / rows.shape[-1]


def _var(result: torch.Tensor, x: torch.Tensor, dims: Any = None, *rest: Any, **named: Any) -> torch.Tensor:
    rows = _rows(x, dims)
    correction = named.get("correction")
    count = rows.shape[-1]
    centred = rows - _running(rows)[..., -1:] / count
    return _running(centred * centred)[..., -1] / max(count - (1 if correction is None else correction), 0)


def _normalize(rows: torch.Tensor, eps: float) -> torch.Tensor:
    """Rows less their mean, divided by their deviation; both from sums in plain order."""
    count = rows.shape[-1]
    centred = rows - _running(rows)[..., -1:] / count
    return centred * (_running(centred * centred)[..., -1:] / count + eps).rsqrt()


def _scale(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    """Weight and bias applied along the second axis."""
    shape = [1, -1, *[1] * (x.dim() - 2)]
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _group_norm(x: torch.Tensor, weight: Any, bias: Any, batch: int, *rest: Any) -> torch.Tensor:
    *_, groups, eps = rest
    normed = _normalize(x.reshape(batch * groups, -1).float(), eps)
    return _scale(normed.reshape(x.shape), weight, bias)


def _layer_norm(x: torch.Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> torch.Tensor:
    normed = _normalize(x.reshape(*x.shape[: x.dim() - len(shape)], -1).float(), eps).reshape(x.shape)
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def _batch_norm(x: torch.Tensor, weight: Any, bias: Any, *rest: Any) -> torch.Tensor | None:
    """Of the batch's own statistics, as in an instance norm; with running ones nothing is summed."""
    _, _, training, _, eps = rest
    if not training:
        return None
    turned = x.transpose(0, 1)
    normed = _normalize(turned.reshape(len(turned), -1).float(), eps).reshape(turned.shape).transpose(0, 1)
    return _scale(normed, weight, bias)


def _norm(result: torch.Tensor, x: torch.Tensor, ord: Any = 2, dims: Any = None, *rest: Any, **named: Any) -> Any:
    rows = _rows(x, dims)
    return _running(rows * rows)[..., -1].sqrt() if ord == 2 else result


def _logsumexp(result: torch.Tensor, x: torch.Tensor, dims: Any, *rest: Any, **named: Any) -> torch.Tensor:
    rows = _rows(x, dims)
    top = rows.amax(-1, keepdim=True)
    return _running(torch.exp(rows - top))[..., -1].log() + top.squeeze(-1)


def _cumsum(result: torch.Tensor, x: torch.Tensor, dim: int, *rest: Any, **named: Any) -> torch.Tensor:
    return _running(x.movedim(dim, -1).float()).movedim(-1, dim) if x.dim() else result


_SUMS: dict[str, Callable[..., Any]] = {
    "sum": _sum,
    "mean": _mean,
    "var": _var,
    "linalg_vector_norm": _norm,
    "logsumexp": _logsumexp,
    "cumsum": _cumsum,
}

_NORMS: dict[str, Callable[..., torch.Tensor | None]] = {
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "native_batch_norm": _batch_norm,
}
