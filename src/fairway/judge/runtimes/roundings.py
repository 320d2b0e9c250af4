"""PyTorch with each of its roundings moved, to see which answers depend on them.

Only what was rounded is moved: a comparison of an input with a number, or a sum of whole numbers, is exact, and a file
that answers it differently is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map  # seen to work in torch 2.9–2.13; no public counterpart

from fairway.judge.runtimes.eager import NARROW
from fairway.judge.runtimes.operator_watch import Watch

_MATRIX_PRODUCTS = (
    "mm",
    "bmm",
    "addmm",
    "addbmm",
    "baddbmm",
    "mv",
    "addmv",
    "dot",
    "convolution",
    "_convolution",
    "mkldnn_convolution",
)

_CONTRACTIONS = (
    *_MATRIX_PRODUCTS,
    "sum",
    "mean",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "cumsum",
    "cumprod",
    "prod",
    "logsumexp",
    "linalg_vector_norm",
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "dist",
    "mkldnn_rnn_layer",
    "_native_batch_norm_legit_no_training",
    "_scaled_dot_product_flash_attention_for_cpu",
    "index_add",
    "scatter_add",
    "_scaled_dot_product_attention_math",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "_fft_r2c",
    "_fft_c2c",
    "_fft_c2r",
    "_cdist_forward",
    "_euclidean_dist",
)
"""Operators that round on the way: their error is that of their terms, and not of their result."""

_LARGEST_PRODUCT = 10**9
"""Multiplications above which a product is not computed again in float64, and counts as rounded."""


class MovedRoundings(Watch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Each result that is not exact is moved by about `times` its rounding error.

    The terms of sums and products are moved too. What is exact is seen by computing it in float64 as well.
    """

    def __init__(self, seed: int, times: float = 1.0) -> None:
        super().__init__()
        self._times = times
        self._generator = torch.Generator().manual_seed(seed)

    def watch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func.is_view or torch.Tag.nondeterministic_seeded in func.tags:
            return func(*args, **kwargs)
        wide = self._wide(func, args, kwargs)
        given = [id(item) for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        if func.overloadpacket.__name__ in _CONTRACTIONS:
            plain = func(*args, **kwargs)
            moved = func(*tree_map(self._move, tuple(args)), **kwargs)
            return _choose(plain, tree_map(self._move, moved), wide)
        result = func(*args, **kwargs)
        if any(id(item) in given for item in tree_leaves(result)):  # computed in place
            return tree_map(lambda item: self._settle_in_place(item, wide), result)
        return _choose(result, tree_map(self._move, result), wide)

    def _wide(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """The results in float64, from the same arguments; None if they cannot be had, or would take long."""
        tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        if not any(item.dtype in NARROW for item in tensors) and not _makes_narrow(kwargs):
            return None
        if func.overloadpacket.__name__ in _MATRIX_PRODUCTS and _multiplications(tensors) > _LARGEST_PRODUCT:
            return None
        try:
            return tree_leaves(func(*tree_map(_widen, tuple(args)), **tree_map(_widen, dict(kwargs))))
        except Exception:  # an operator that has no float64: all of its results count as rounded
            return None

    def _move(self, item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or item.dtype not in NARROW:
            return item
        noise = torch.randn(item.shape, generator=self._generator, dtype=torch.float32).double()
        moved = item.double() * (1 + noise * self._times * torch.finfo(item.dtype).eps)
        return torch.where(torch.isfinite(item), moved.to(item.dtype), item)

    def _settle_in_place(self, item: Any, wide: list[Any] | None) -> Any:
        if not isinstance(item, torch.Tensor) or item.dtype not in NARROW:
            return item
        return item.copy_(_choose(item, self._move(item), wide))


def _choose(plain: Any, moved: Any, wide: list[Any] | None) -> Any:
    """The moved results where the plain ones are not exact. What is no float is never moved by itself."""
    leaves, others = tree_leaves(plain), iter(tree_leaves(moved))
    truths = iter(wide if wide is not None and len(wide) == len(leaves) else [None] * len(leaves))

    def choose(item: Any) -> Any:
        other, truth = next(others), next(truths)
        if not isinstance(item, torch.Tensor) or item.dtype not in NARROW:
            return item
        if not isinstance(truth, torch.Tensor) or truth.shape != item.shape:
            return other
        return torch.where(item.double() == truth, item, other)

    return tree_map(choose, plain)


def _widen(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.double() if item.dtype in NARROW else item.clone()
    return torch.float64 if item in NARROW else item


def _makes_narrow(kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("dtype") in NARROW


def _multiplications(tensors: Sequence[torch.Tensor]) -> int:
    """A bound on those of a product of two tensors."""
    large = sorted((item for item in tensors), key=lambda item: -item.numel())[:2]
    return 0 if len(large) < 2 else large[0].numel() * max(large[1].shape, default=1)
