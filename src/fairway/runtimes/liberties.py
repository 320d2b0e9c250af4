"""PyTorch with those choices made otherwise that it leaves open, to see what hangs on them.

The order of equal elements in a sort, the order in which a sum is taken, and the last place of functions such as the
sigmoid are nobody's promise. A file that differs from PyTorch by no more than these do is not wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map  # seen to work in torch 2.9–2.13; no public counterpart

from fairway.runtimes.eager import NARROW
from fairway.runtimes.watch import Watch

_BOUNDED = (
    "sigmoid", "tanh", "erf", "_softmax", "silu", "gelu", "mkldnn_rnn_layer",
    "log1p", "expm1", "softplus", "log_sigmoid_forward", "elu", "mish",
)  # fmt: skip
"""Functions that runtimes compute to an absolute error at the scale of 1: their small values have no correct digits.
ONNX Runtime's sigmoid(-18) is 0 (pytorch/pytorch#147508), and ONNX has no log1p: exporters write log(1 + x);
its Elu is exp(x) - 1, where PyTorch takes expm1."""

_IN_PLACE = ("sigmoid", "tanh")
"""Of those: what recurrent layers compute in place when their input is packed."""

_TRANSFORMS = ("_fft_r2c", "_fft_c2c", "_fft_c2r")

_PRODUCTS = ("silu", "gelu", "mish")
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


class PlainArithmetic(Watch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Sums are taken one element after the other in float32, and bounded functions are no finer than the last place
    at 1.

    PyTorch sums in a tree and accumulates `cumsum` in float64, so its own error says little about another engine's.
    `used` tells whether anything was computed otherwise.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used = False
        self._generator = torch.Generator().manual_seed(0)

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name.removesuffix("_") in _IN_PLACE and name.endswith("_"):
            self.used = True
            return args[0].copy_(self._coarse(args[0], args[0]))
        if name in _BOUNDED:
            self.used = True
            if args[0].element_size() == 2 and name in _WIDENED:
                return result
            if name in _PRODUCTS and result.element_size() > 2:
                return self._coarse(result, args[0])
            return tree_map(lambda item: self._coarse(item, item), result)
        if name in _TRANSFORMS:
            self.used = True
            return self._resummed(result, args[0], args[1])
        if name in _SUMS and _narrow(args[0]) and _narrow(result) and args[0].numel():
            self.used = True
            return _SUMS[name](result, *args, **kwargs).reshape(result.shape).to(result.dtype)
        return result

    def _coarse(self, item: Any, scale: Any) -> Any:
        """Moved by the last place of `scale`, or of 1 where that is smaller."""
        if not isinstance(item, torch.Tensor) or not item.is_floating_point():
            return item
        signs = torch.randint(0, 2, item.shape, generator=self._generator) * 2 - 1
        return (item + signs * torch.finfo(item.dtype).eps * scale.abs().clamp(min=1)).to(item.dtype)


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
