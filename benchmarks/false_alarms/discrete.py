"""Families whose answers jump: ties, rounding, places, whole numbers, bools; and outputs that compute nothing."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from family import family

X = "x: {f}[batch, n]"
WHOLE = "x: int64[batch, n] in -9..9"
SMALL = "x: int32[batch, n] in -50..50"
ONE = ("none",)
TIED = "which of equal elements is meant is not defined; the elements at the places given are the right ones"
JUMPS = "a value within a rounding error of a jump may fall on either side; every element is one of the two"


def same_values(axis=-1, prepare=lambda x: x):
    """The places differ at most among equal elements: what stands there is the same, and no place comes twice."""

    def check(inputs, ours, theirs):
        x = prepare(inputs[0].astype(np.float64))
        values = [np.take_along_axis(x, places.astype(np.int64), axis) for places in (ours[-1], theirs[-1])]
        distinct = np.sort(theirs[-1], axis)
        return bool((values[0] == values[1]).all() and (np.diff(distinct, axis=axis) > 0).all())

    return check


def log_softmax(x):
    """Rounded, so that what differs in the last place counts as equal."""
    top = x - x.max(-1, keepdims=True)
    return np.round(top - np.log(np.exp(top).sum(-1, keepdims=True)), 4).reshape(len(x), -1)


def within(step):
    """Equal but for steps of one size, in few places."""

    def check(inputs, ours, theirs):
        gap = np.abs(ours[0].astype(np.float64) - theirs[0].astype(np.float64))
        return bool(((gap < step * 1e-2) | (np.abs(gap - step) < step * 1e-2)).all() and (gap > step / 2).mean() < 0.02)

    return check


# Places of extremes, where many elements are equal.
family("argmax_rounded", X)(lambda x: torch.round(x).argmax(-1))
family("argmin_whole", WHOLE, dtypes=ONE)(lambda x: x.argmin(-1))
family("argmax_whole", WHOLE, dtypes=ONE)(lambda x: x.argmax(-1))
family("argmax_relu", X)(lambda x: torch.relu(x - 1).argmax(-1))
family("argmax_logits", X, dtypes=("float32",))(lambda x: torch.softmax(x * 50, -1).argmax(-1))
family("max_with_place", X)(lambda x: torch.round(x * 2).max(-1))
family("sort_rounded_values", X)(lambda x: torch.sort(torch.round(x), dim=-1).values)
family("topk_values", X, {"n": (3, 40)})(lambda x: torch.topk(torch.round(x), 3, -1).values)
family("topk_places_tied", X, {"n": (3, 40)}, dtypes=("float32",), why=TIED, check=same_values(prepare=np.round))(
    lambda x: torch.topk(torch.round(x), 3, -1).indices
)
family(
    "topk_places_relu",
    X,
    {"n": (3, 40)},
    dtypes=("float32",),
    why=TIED,
    check=same_values(prepare=lambda x: np.maximum(x, 0)),
)(lambda x: torch.topk(torch.relu(x), 3, -1).indices)
family("topk_places_whole", WHOLE, {"n": (3, 40)}, dtypes=ONE, why=TIED, check=same_values())(
    lambda x: torch.topk(x, 3, -1).indices
)
family("sort_places_tied", X, dtypes=("float32",), why=TIED, check=same_values(prepare=np.round))(
    lambda x: torch.sort(torch.round(x), dim=-1).indices
)
family("argsort_whole", WHOLE, dtypes=ONE, why=TIED, check=same_values())(lambda x: torch.argsort(x, dim=-1))
family("gather_by_topk", X, {"n": (3, 40)})(lambda x: torch.gather(x, 1, torch.topk(x, 3, -1).indices))
family("beam_step", "x: {f}[batch, 3, 20]", dtypes=("float32",), why=TIED, check=same_values(prepare=log_softmax))(
    lambda x: torch.topk(F.log_softmax(x, -1).flatten(1), 4, -1)
)

# Rounding and casts to whole numbers.
family("round_half", X)(lambda x: torch.round(x * 2) / 2)
family("floor_tenths", X, dtypes=("float32",), why=JUMPS, check=within(0.1))(lambda x: torch.floor(x * 10) / 10)
family("to_whole", X, dtypes=("float32",), why=JUMPS, check=within(1))(lambda x: (x * 7.3).long())
family("to_whole_of_sum", X, dtypes=("float32",), why=JUMPS, check=within(1))(lambda x: (x.sum(-1) * 10).floor().int())
family("sign_of_sum", X, dtypes=("float32",), why=JUMPS, check=within(2))(lambda x: torch.sign(x.sum(-1)))
family("above_mean", X, dtypes=("float32",), why=JUMPS, check=within(1))(lambda x: x > x.mean(-1, keepdim=True))
family("step_function", X)(lambda x: torch.where(x > 0, torch.ones_like(x), -x))
family("fake_quantized", X, dtypes=("float32",), why=JUMPS, check=within(0.05))(
    lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127)
)
family("fake_quantized_linear", "x: {f}[batch, n, 8]", dtypes=("float32",), scale=100, why=JUMPS)(
    lambda x: torch.fake_quantize_per_tensor_affine(torch.tanh(x), 1 / 64, 0, -128, 127).sum(-1)
)
family("bucket_by_compare", X)(lambda x: (x.unsqueeze(-1) > torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype)).sum(-1))

# Whole numbers.
family("floor_divide", WHOLE, dtypes=ONE)(lambda x: (x // 4, x % 4, torch.div(x, 3, rounding_mode="trunc")))
family("floor_divide_negative", WHOLE, dtypes=ONE)(lambda x: (x // -4, x % -3))
family("divide_two", (WHOLE, "y: int64[batch, n] in 1..9"), dtypes=ONE)(lambda x, y: (x // y, x % y))
family("true_divide", WHOLE, dtypes=ONE)(lambda x: x / 3)
family("wraps_int32", "x: int32[batch, n] in -2000..2000", dtypes=ONE)(lambda x: x * x * x * 7)
family("wraps_int64", "x: int64[batch, n] in -3000000..3000000", dtypes=ONE)(lambda x: x * x * x * 7)
family("sum_of_int32", SMALL, dtypes=ONE)(lambda x: (x.sum(-1), x.cumsum(-1)))
family("bitwise", "x: uint8[batch, n] < 200", dtypes=ONE)(lambda x: (x & 12, x | 3, x ^ 255))
family("shift_uint8", "x: uint8[batch, n] < 200", dtypes=ONE)(lambda x: (x >> 2, x << 1))
family("uint8_image", "x: uint8[batch, 3, n] < 256", dtypes=ONE)(lambda x: (x.float() / 255 - 0.5) / 0.25)
family("int8_to_float", "x: int8[batch, n]", dtypes=ONE)(lambda x: x.float() * 0.05)
family("one_hot", "x: int64[batch, n] < 9", dtypes=ONE)(lambda x: F.one_hot(x, 9))
family("histogram", "x: int64[batch, n] < 9", dtypes=ONE)(
    lambda x: torch.zeros(x.shape[0], 9).scatter_add(1, x, torch.ones_like(x, dtype=torch.float32))
)
family("positions", WHOLE, dtypes=ONE)(lambda x: torch.cumsum((x > 0).long(), -1) * (x > 0))
family("where_whole", WHOLE, dtypes=ONE)(lambda x: torch.where(x % 2 == 0, x, -x))

# Bools.
family("any_all", "x: bool[batch, n]", dtypes=ONE)(lambda x: (x.any(-1), x.all(-1), x.sum(-1)))
family("logic", ("x: bool[batch, n]", "y: bool[batch, n]"), dtypes=ONE)(lambda x, y: (x & y, x | ~y, x ^ y))
family("causal_mask", WHOLE, dtypes=ONE)(lambda x: torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril())
family("equal_ids", WHOLE, dtypes=ONE)(lambda x: x.unsqueeze(1) == x.unsqueeze(2))

# Outputs that compute nothing.
family("constant_out", X)(lambda x: (torch.ones(3, dtype=x.dtype), x * 2))
family("sizes_out", X, dtypes=("float32",))(lambda x: (torch.full((1,), x.shape[1]), x + 1))
family("input_out", X)(lambda x: (x.clone(), x * 2))
family("same_twice", X)(lambda x: (torch.tanh(x), torch.tanh(x)))
family("zeros_by_size", X)(lambda x: (torch.zeros_like(x), x.new_ones(x.shape[0]), x * 3))
family("arange_by_size", X, dtypes=("float32",))(lambda x: (torch.arange(x.shape[1]), x.flip(1)))
