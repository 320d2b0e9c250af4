"""Run PyTorch with each of its roundings moved, to see which answers depend on them.

Only rounded results are moved. A comparison of an input with a number, or a sum of whole numbers, is exact, and a file
with another result is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fairway.judge.runtimes.eager import NARROW_DTYPES
from fairway.judge.runtimes.items import Item, Items, NamedItems, Operator
from fairway.judge.runtimes.operator_watch import OperatorWatch
from fairway.torch_internals import tree_leaves, tree_map

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
"""Operators that round intermediate results: their error is that of their terms, not of their result."""

_MAX_CHECKED_MULTIPLICATIONS = 10**9
"""A product with more multiplications is not computed again in float64, and counts as rounded."""


class MovedRoundings(OperatorWatch):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """Moves each result that is not exact by about `times` its rounding error.

    The terms of sums and products are moved too. A result is exact if it is the same in float64.
    """

    def __init__(self, seed: int, times: float = 1.0) -> None:
        super().__init__()
        self._times = times
        self._generator = torch.Generator().manual_seed(seed)

    def watch(self, func: Operator, args: Items, kwargs: NamedItems) -> Item:
        if func.is_view or torch.Tag.nondeterministic_seeded in func.tags:
            return func(*args, **kwargs)
        wide = self._compute_wide(func, args, kwargs)
        given = [id(item) for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        if func.overloadpacket.__name__ in _CONTRACTIONS:
            plain = func(*args, **kwargs)
            moved = func(*tree_map(self._move, tuple(args)), **kwargs)
            return _choose_results(plain, tree_map(self._move, moved), wide)
        result = func(*args, **kwargs)
        if any(id(item) in given for item in tree_leaves(result)):  # computed in place
            return tree_map(lambda item: self._settle_in_place(item, wide), result)
        return _choose_results(result, tree_map(self._move, result), wide)

    def _compute_wide(self, func: Operator, args: Items, kwargs: NamedItems) -> list[Item] | None:
        """Return the results in float64 from the same arguments, or None if that is impossible or would take long."""
        tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        if not any(item.dtype in NARROW_DTYPES for item in tensors) and not _is_making_narrow(kwargs):
            return None
        if (
            func.overloadpacket.__name__ in _MATRIX_PRODUCTS
            and _estimate_multiplications(tensors) > _MAX_CHECKED_MULTIPLICATIONS
        ):
            return None
        try:
            return tree_leaves(func(*tree_map(_widen, tuple(args)), **tree_map(_widen, dict(kwargs))))
        except Exception:  # the operator has no float64, so all of its results count as rounded
            return None

    def _move(self, item: Item) -> Item:
        if not isinstance(item, torch.Tensor) or item.dtype not in NARROW_DTYPES:
            return item
        noise = torch.randn(item.shape, generator=self._generator, dtype=torch.float32).double()
        moved = item.double() * (1 + noise * self._times * torch.finfo(item.dtype).eps)
        return torch.where(torch.isfinite(item), moved.to(item.dtype), item)

    def _settle_in_place(self, item: Item, wide: list[Item] | None) -> Item:
        if not isinstance(item, torch.Tensor) or item.dtype not in NARROW_DTYPES:
            return item
        return item.copy_(_choose_results(item, self._move(item), wide))


def _choose_results(plain: Item, moved: Item, wide: list[Item] | None) -> Item:
    """Return the moved results where the plain ones are not exact. Only floats are moved."""
    leaves, others = tree_leaves(plain), iter(tree_leaves(moved))
    truths = iter(wide if wide is not None and len(wide) == len(leaves) else [None] * len(leaves))

    def choose(item: Item) -> Item:
        other, truth = next(others), next(truths)
        if not isinstance(item, torch.Tensor) or item.dtype not in NARROW_DTYPES:
            return item
        if not isinstance(truth, torch.Tensor) or truth.shape != item.shape:
            return other
        return torch.where(item.double() == truth, item, other)

    return tree_map(choose, plain)


def _widen(item: Item) -> Item:
    if isinstance(item, torch.Tensor):
        return item.double() if item.dtype in NARROW_DTYPES else item.clone()
    return torch.float64 if item in NARROW_DTYPES else item


def _is_making_narrow(kwargs: NamedItems) -> bool:
    return kwargs.get("dtype") in NARROW_DTYPES


def _estimate_multiplications(tensors: Sequence[torch.Tensor]) -> int:
    """Return an upper bound on the number of multiplications in a product of two tensors."""
    large = sorted((item for item in tensors), key=lambda item: -item.numel())[:2]
    return 0 if len(large) < 2 else large[0].numel() * max(large[1].shape, default=1)
