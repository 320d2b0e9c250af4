"""Compute operators on complex tensors on their real and imaginary parts.

Each rule takes the operator's own arguments, with a `Parts` for each complex tensor, and returns a `Parts`, a list of
them, or a real tensor. Rules are ordinary torch code: they are traced with the shapes of the program at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import torch

from fairway.convert.remedies.complex.complex_fourier import (
    invert_to_real,
    make_inverse_real_transform,
    make_real_transform,
    make_transform,
    transform_complex,
    transform_real,
)
from fairway.convert.remedies.complex.complex_math import (
    add,
    compare_equal,
    compute_angle,
    compute_cosine,
    compute_length,
    compute_sigmoid,
    compute_sign,
    compute_sine,
    compute_tanh,
    conjugate,
    divide,
    exponentiate,
    fill_masked,
    make_polar,
    multiply,
    raise_to_power,
    select,
    subtract,
    subtract_from,
    take_logarithm,
    take_root,
)
from fairway.convert.remedies.complex.complex_parts import (
    Parts,
    Rule,
    RuleValue,
    choose_part,
    get_first_part,
    make_joiner,
    make_part_by_part,
    make_writer,
    split_parts,
)
from fairway.torch_internals import aten_linalg_solve_ex

_ATEN = torch.ops.aten


def _make_bilinear(operator: Callable[..., torch.Tensor]) -> Rule:
    """Return the rule of an operator that is linear in each of its first two arguments, such as a matrix product."""

    def multiply(first: RuleValue, other: RuleValue, *settings: RuleValue, **named: RuleValue) -> Parts:
        def part(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return operator(left, right, *settings, **named)

        if not isinstance(first, Parts):
            return Parts(part(first, other.real), part(first, other.imag))
        if not isinstance(other, Parts):
            return Parts(part(first.real, other), part(first.imag, other))
        return Parts(
            part(first.real, other.real) - part(first.imag, other.imag),
            part(first.real, other.imag) + part(first.imag, other.real),
        )

    return multiply


def _make_biased(operator: Callable[..., torch.Tensor]) -> Rule:
    """Return the rule of a convolution or linear layer: a bilinear operator with a bias as its third argument."""
    plain = _make_bilinear(lambda x, weight, *settings: operator(x, weight, None, *settings))

    def apply(x: RuleValue, weight: RuleValue, bias: RuleValue = None, *settings: RuleValue) -> RuleValue:
        result = plain(x, weight, *settings)
        if bias is None:
            return result
        dims = 1 if operator is _ATEN.linear else result.real.dim() - 1
        shape = [-1, *[1] * (dims - 1)]
        bias = split_parts(bias)
        return add(result, Parts(bias.real.reshape(shape), bias.imag.reshape(shape)))

    return apply


def _einsum(equation: str, operands: Sequence[RuleValue], path: RuleValue = None) -> RuleValue:
    """Sum the products of parts. A product with an even number of imaginary factors is real."""
    sums: list[RuleValue] = [0, 0]
    for chosen in product((0, 1), repeat=len(operands)):
        if any(part and not isinstance(value, Parts) for part, value in zip(chosen, operands, strict=True)):
            continue
        parts = [choose_part(value, part) for part, value in zip(chosen, operands, strict=True)]
        sign = -1 if sum(chosen) % 4 >= 2 else 1
        sums[sum(chosen) % 2] = sums[sum(chosen) % 2] + sign * torch.einsum(equation, *parts)
    return Parts(*sums)


def _make_block(value: RuleValue) -> torch.Tensor:
    """Return the real matrix of twice the size that multiplies parts as the complex matrix multiplies numbers."""
    value = split_parts(value)
    upper = torch.cat([value.real, -value.imag], -1)
    return torch.cat([upper, torch.cat([value.imag, value.real], -1)], -2)


def _solve(matrix: RuleValue, right: RuleValue, *, left: bool = True, **checks: RuleValue) -> RuleValue:
    right = split_parts(right)
    if not left or right.real.dim() != split_parts(matrix).real.dim():
        return NotImplemented
    both = aten_linalg_solve_ex(_make_block(matrix), torch.cat([right.real, right.imag], -2))[0]
    size = right.real.shape[-2]
    return Parts(both.narrow(-2, 0, size), both.narrow(-2, size, size))


def _inverse(matrix: Parts) -> Parts:
    size = matrix.real.shape[-1]
    both = _ATEN.linalg_inv_ex.default(_make_block(matrix))[0].narrow(-1, 0, size)
    return Parts(both.narrow(-2, 0, size), both.narrow(-2, size, size))


def _norm(value: Parts, *settings: RuleValue, **named: RuleValue) -> torch.Tensor:
    named.pop("dtype", None)
    norm: torch.Tensor = _ATEN.linalg_vector_norm(compute_length(value), *settings, **named)
    return norm


def _product(value: Parts, dim: int, keepdim: bool = False, **named: RuleValue) -> Parts:
    length, angle = compute_length(value).prod(dim, keepdim), compute_angle(value).sum(dim, keepdim)
    return make_polar(length, angle)


def _convert(value: RuleValue, *, dtype: torch.dtype | None = None, **places: RuleValue) -> RuleValue:
    if dtype is None:
        return value
    if not dtype.is_complex:
        return get_first_part(value).to(dtype)
    parts = split_parts(value)
    real = dtype.to_real()
    return Parts(parts.real.to(real), parts.imag.to(real))


def _make_factory(operator: Callable[..., torch.Tensor]) -> Rule:
    """Return the rule of a factory whose dtype is complex."""

    def make(size: RuleValue, *values: RuleValue, dtype: torch.dtype | None = None, **places: RuleValue) -> Parts:
        real = (dtype or torch.complex64).to_real()
        number = complex(*values) if values else None
        shape = list(get_first_part(size).shape) if isinstance(size, Parts | torch.Tensor) else size
        if number is None:
            filled = operator(shape, dtype=real)
            return Parts(filled, torch.zeros_like(filled))
        return Parts(torch.full(shape, number.real, dtype=real), torch.full(shape, number.imag, dtype=real))

    return make


def _make_new_factory(operator: Callable[..., torch.Tensor]) -> Rule:
    """Return the rule of a `new_` factory: the tensor it is called on gives only its dtype."""
    make = _make_factory(operator)

    def create(
        source: RuleValue, size: RuleValue, *values: RuleValue, dtype: torch.dtype | None = None, **places: RuleValue
    ) -> RuleValue:
        if dtype is not None and not dtype.is_complex:
            return operator(size, *values, dtype=dtype)
        return make(size, *values, dtype=dtype)

    return create


def _pair(real: torch.Tensor, imaginary: torch.Tensor) -> Parts:
    broadcast: RuleValue = torch.broadcast_tensors  # untyped
    return Parts(*broadcast(real, imaginary))


def _scalar(number: complex, *, dtype: torch.dtype | None = None, **places: RuleValue) -> Parts:
    real = (dtype or torch.complex64).to_real()
    number = complex(number)
    return Parts(torch.full([], number.real, dtype=real), torch.full([], number.imag, dtype=real))


_VIEWS = (
    "alias",
    "contiguous",
    "detach",
    "expand",
    "expand_as",
    "flatten",
    "reshape",
    "view",
    "view_as",
    "_unsafe_view",
    "unflatten",
)


_DIMS = ("movedim", "mT", "numpy_T", "permute", "squeeze", "swapaxes", "t", "transpose", "unsqueeze")


_PICKS = (
    "diagonal",
    "gather",
    "index",
    "index_select",
    "masked_select",
    "narrow",
    "select",
    "slice",
    "take_along_dim",
    "unfold",
)


_MOVES = (
    "clone",
    "flip",
    "lift_fresh_copy",
    "repeat",
    "repeat_interleave",
    "roll",
    "tril",
    "triu",
    "diag_embed",
    "as_strided",
)


_PADS = ("constant_pad_nd", "pad", "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d")


_SPLITS = ("chunk", "split", "split_with_sizes", "unbind", "unsafe_chunk", "unsafe_split")


_SUMS = ("cumsum", "mean", "neg", "nan_to_num", "sum", "trace")


_PART_BY_PART = (*_VIEWS, *_DIMS, *_PICKS, *_MOVES, *_PADS, *_SPLITS, *_SUMS)


_WRITES = {
    "cat": None,
    "stack": None,
    "concat": None,
    "copy": (0, 1),
    "slice_scatter": (0, 1),
    "select_scatter": (0, 1),
    "index_put": (0, 2),
    "diagonal_scatter": (0, 1),
    "scatter": (0, 3),
    "scatter_add": (0, 3),
    "index_add": (0, 3),
    "index_copy": (0, 3),
    "masked_scatter": (0, 2),
}


RULES: dict[str, Rule] = {
    **{name: make_part_by_part(getattr(_ATEN, name)) for name in _PART_BY_PART if hasattr(_ATEN, name)},
    **{name: make_joiner(getattr(_ATEN, name)) for name in ("cat", "stack", "concat")},
    **{name: make_writer(getattr(_ATEN, name), places) for name, places in _WRITES.items() if places},
    "add": add,
    "sub": subtract,
    "rsub": subtract_from,
    "mul": multiply,
    "multiply": multiply,
    "div": divide,
    "true_divide": divide,
    "reciprocal": lambda value: divide(1.0, value),
    "square": lambda value: multiply(value, value),
    "pow": raise_to_power,
    "exp": exponentiate,
    "log": take_logarithm,
    "sqrt": take_root,
    "rsqrt": lambda value: divide(1.0, take_root(value)),
    "sgn": compute_sign,
    "cos": compute_cosine,
    "sin": compute_sine,
    "sigmoid": compute_sigmoid,
    "silu": lambda value: multiply(value, compute_sigmoid(value)),
    "tanh": compute_tanh,
    "abs": compute_length,
    "angle": compute_angle,
    "real": lambda value: value.real,
    "imag": lambda value: value.imag,
    "view_as_real": lambda value: torch.stack([value.real, value.imag], -1),
    "view_as_complex": lambda pairs: Parts(pairs.select(-1, 0), pairs.select(-1, 1)),
    "complex": _pair,
    "polar": make_polar,
    "conj": conjugate,
    "_conj": conjugate,
    "_conj_physical": conjugate,
    "conj_physical": conjugate,
    "matrix_H": lambda value: Parts(value.real.mT, -value.imag.mT),
    "mH": lambda value: Parts(value.real.mT, -value.imag.mT),
    "adjoint": lambda value: Parts(value.real.mT, -value.imag.mT),
    "resolve_conj": lambda value: value,
    "resolve_neg": lambda value: value,
    "_neg_view": lambda value: Parts(-value.real, -value.imag),
    "eq": compare_equal,
    "ne": lambda first, other: ~compare_equal(first, other),
    "isnan": lambda value: value.real.isnan() | value.imag.isnan(),
    "isinf": lambda value: value.real.isinf() | value.imag.isinf(),
    "isfinite": lambda value: value.real.isfinite() & value.imag.isfinite(),
    "where": select,
    "masked_fill": fill_masked,
    **{name: _make_bilinear(getattr(_ATEN, name)) for name in ("mm", "bmm", "mv", "dot", "matmul", "outer")},
    "vdot": lambda first, other: _make_bilinear(_ATEN.dot)(conjugate(first), other),
    "linear": _make_biased(_ATEN.linear),
    "convolution": _make_biased(_ATEN.convolution),
    **{f"conv{n}d": _make_biased(getattr(_ATEN, f"conv{n}d")) for n in (1, 2, 3)},
    "addmm": lambda bias, first, other, beta=1, alpha=1: add(bias, _make_bilinear(_ATEN.mm)(first, other)),
    "baddbmm": lambda bias, first, other, beta=1, alpha=1: add(bias, _make_bilinear(_ATEN.bmm)(first, other)),
    "einsum": _einsum,
    "linalg_solve": _solve,
    "linalg_solve_ex": lambda matrix, right, **settings: [_solve(matrix, right, **settings), None],
    "linalg_inv": _inverse,
    "linalg_inv_ex": lambda matrix, **settings: [_inverse(matrix), None],
    "inverse": _inverse,
    "linalg_vector_norm": _norm,
    "prod": _product,
    "_to_copy": _convert,
    "to": lambda value, *given, dtype=None, **places: _convert(
        value, dtype=next((item for item in given if isinstance(item, torch.dtype)), dtype)
    ),
    "full": lambda size, value, **settings: _make_factory(torch.full)(size, value, **settings),
    "zeros": _make_factory(torch.zeros),
    "ones": _make_factory(torch.ones),
    "empty": _make_factory(torch.zeros),
    "zeros_like": _make_factory(torch.zeros),
    "ones_like": _make_factory(torch.ones),
    "empty_like": _make_factory(torch.zeros),
    "full_like": lambda size, value, **settings: _make_factory(torch.full)(size, value, **settings),
    "new_zeros": _make_new_factory(torch.zeros),
    "new_ones": _make_new_factory(torch.ones),
    "new_empty": _make_new_factory(torch.zeros),
    "new_full": _make_new_factory(torch.full),
    "scalar_tensor": _scalar,
    **{
        f"fft_{name}{suffix}": rule(rank)
        for suffix, rank in (("", 1), ("2", 2), ("n", None))
        for name, rule in (
            ("fft", lambda rank: make_transform(True, rank)),
            ("ifft", lambda rank: make_transform(False, rank)),
            ("rfft", make_real_transform),
            ("irfft", make_inverse_real_transform),
        )
    },
    "_fft_r2c": transform_real,
    "_fft_c2c": transform_complex,
    "_fft_c2r": invert_to_real,
}
"""Rules by the name of the operator without its overload."""
