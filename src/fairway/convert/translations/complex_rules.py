"""Compute operators on complex tensors on their real and imaginary parts.

Each rule takes the operator's own arguments, with a `Parts` for each complex tensor, and returns a `Parts`, a list of
them, or a real tensor. Rules are ordinary torch code: they are traced with the shapes of the program at hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fairway.torch_internals import aten_fft_c2c, aten_fft_r2c, aten_linalg_solve_ex

_ATEN = torch.ops.aten


class Parts(NamedTuple):
    """A complex tensor as two real ones of the same shape."""

    real: torch.Tensor
    imag: torch.Tensor


Rule = Callable[..., Any]


def split_parts(value: Any) -> Any:
    """Return the parts of a number, of a real tensor or of a list; `Parts` stay as they are."""
    if isinstance(value, Parts):
        return value
    if isinstance(value, complex):
        return Parts(torch.tensor(value.real), torch.tensor(value.imag))
    if isinstance(value, torch.Tensor):
        return Parts(value, torch.zeros_like(value))
    return value


def join_parts(parts: Parts) -> torch.Tensor:
    return torch.view_as_complex(torch.stack([parts.real, parts.imag], -1))


def take_parts(value: torch.Tensor) -> Parts:
    pairs = torch.view_as_real(value.resolve_conj())
    return Parts(pairs.select(-1, 0), pairs.select(-1, 1))


def _first_part(value: Any) -> torch.Tensor:
    return value.real if isinstance(value, Parts) else value


def _add(first: Any, other: Any, alpha: Any = 1, *, sign: int = 1) -> Parts:
    first, other = _as_parts(first), _as_parts(other)
    factor = sign if alpha == 1 else sign * alpha
    if factor == 1:
        return Parts(first.real + other.real, first.imag + other.imag)
    if factor == -1:
        return Parts(first.real - other.real, first.imag - other.imag)
    return Parts(first.real + factor * other.real, first.imag + factor * other.imag)


def _as_parts(value: Any) -> Any:
    """Return parts as `split_parts` does; plain numbers stay plain numbers in each part."""
    if isinstance(value, complex):
        return Parts(value.real, value.imag)  # type: ignore[arg-type]
    if isinstance(value, torch.Tensor | Parts):
        return split_parts(value)
    return Parts(value, 0)  # type: ignore[arg-type]  # plain numbers, as for complex ones above


def _subtract(first: Any, other: Any, alpha: Any = 1) -> Parts:
    return _add(first, other, alpha, sign=-1)


def _subtract_from(first: Any, other: Any, alpha: Any = 1) -> Parts:
    return _add(other, first, alpha, sign=-1)


def _multiply(first: Any, other: Any) -> Parts:
    if not isinstance(first, Parts | complex):
        first, other = other, first
    first = _as_parts(first)
    if not isinstance(other, Parts | complex):
        return Parts(first.real * other, first.imag * other)
    other = _as_parts(other)
    return Parts(
        first.real * other.real - first.imag * other.imag,
        first.real * other.imag + first.imag * other.real,
    )


def _divide(first: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is not None:
        return NotImplemented
    if not isinstance(other, Parts | complex):
        first = _as_parts(first)
        return Parts(first.real / other, first.imag / other)
    other = _as_parts(other)
    if not isinstance(other.real, torch.Tensor):
        return _multiply(first, 1 / complex(other.real, other.imag))
    # The divisor is scaled first, so that its square neither overflows nor vanishes.
    scale = torch.maximum(other.real.abs(), other.imag.abs())
    real, imag = other.real / scale, other.imag / scale
    square = (real * real + imag * imag) * scale
    turned = _multiply(first, Parts(real, -imag))
    return Parts(turned.real / square, turned.imag / square)


def _conjugate(value: Any) -> Any:
    return Parts(value.real, -value.imag) if isinstance(value, Parts) else value


def _absolute(value: Parts) -> torch.Tensor:
    return torch.sqrt(value.real * value.real + value.imag * value.imag)


def _angle(value: Parts) -> torch.Tensor:
    return torch.atan2(value.imag, value.real)


def _polar(absolute: torch.Tensor, angle: torch.Tensor) -> Parts:
    return Parts(absolute * torch.cos(angle), absolute * torch.sin(angle))


def _exponential(value: Parts) -> Parts:
    return _polar(torch.exp(value.real), value.imag)


def _logarithm(value: Parts) -> Parts:
    return Parts(torch.log(_absolute(value)), _angle(value))


def _sign(value: Parts) -> Parts:
    length = _absolute(value)
    divisor = torch.where(length == 0, torch.ones_like(length), length)
    return Parts(value.real / divisor, value.imag / divisor)


def _take_root(value: Parts) -> Parts:
    return _polar(torch.sqrt(_absolute(value)), _angle(value) / 2)


def _power(value: Any, exponent: Any) -> Any:
    if isinstance(value, Parts) and isinstance(exponent, int) and 1 <= exponent <= 8:
        result = value
        for _ in range(exponent - 1):
            result = _multiply(result, value)
        return result
    if isinstance(value, Parts) and isinstance(exponent, int | float):
        return _polar(torch.pow(_absolute(value), exponent), _angle(value) * exponent)
    if isinstance(value, int | float) and value > 0:
        return _exponential(_multiply(exponent, math.log(value)))
    if isinstance(value, Parts):
        return _exponential(_multiply(_logarithm(value), exponent))
    return NotImplemented


def _cosine(value: Parts) -> Parts:
    return Parts(
        torch.cos(value.real) * torch.cosh(value.imag),
        -torch.sin(value.real) * torch.sinh(value.imag),
    )


def _sine(value: Parts) -> Parts:
    return Parts(
        torch.sin(value.real) * torch.cosh(value.imag),
        torch.cos(value.real) * torch.sinh(value.imag),
    )


def _sigmoid(value: Parts) -> Any:
    return _divide(1.0, _add(_exponential(Parts(-value.real, -value.imag)), 1.0))


def _hyperbolic_tangent(value: Parts) -> Parts:
    twice = _sigmoid(Parts(2 * value.real, 2 * value.imag))
    return Parts(2 * twice.real - 1, 2 * twice.imag)


def _compare_equal(first: Any, other: Any) -> torch.Tensor:
    first, other = _as_parts(first), _as_parts(other)
    equal: torch.Tensor = (first.real == other.real) & (first.imag == other.imag)
    return equal


def _where(condition: torch.Tensor, first: Any, other: Any) -> Parts:
    first, other = _as_parts(first), _as_parts(other)
    return Parts(torch.where(condition, first.real, other.real), torch.where(condition, first.imag, other.imag))


def _mask_fill(value: Parts, mask: torch.Tensor, filling: Any) -> Parts:
    filling = _as_parts(filling)
    return Parts(
        torch.masked_fill(value.real, mask, filling.real),
        torch.masked_fill(value.imag, mask, filling.imag),
    )


def _make_bilinear(operator: Callable[..., torch.Tensor]) -> Rule:
    """Return the rule of an operator that is linear in each of its first two arguments, such as a matrix product."""

    def multiply(first: Any, other: Any, *settings: Any, **named: Any) -> Parts:
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

    def apply(x: Any, weight: Any, bias: Any = None, *settings: Any) -> Any:
        result = plain(x, weight, *settings)
        if bias is None:
            return result
        dims = 1 if operator is _ATEN.linear else result.real.dim() - 1
        shape = [-1, *[1] * (dims - 1)]
        bias = split_parts(bias)
        return _add(result, Parts(bias.real.reshape(shape), bias.imag.reshape(shape)))

    return apply


def _einsum(equation: str, operands: Sequence[Any], path: Any = None) -> Any:
    """Sum products of parts: those with an even number of imaginary factors are real."""
    sums: list[Any] = [0, 0]
    for chosen in product((0, 1), repeat=len(operands)):
        if any(part and not isinstance(value, Parts) for part, value in zip(chosen, operands, strict=True)):
            continue
        parts = [_choose(value, part) for part, value in zip(chosen, operands, strict=True)]
        sign = -1 if sum(chosen) % 4 >= 2 else 1
        sums[sum(chosen) % 2] = sums[sum(chosen) % 2] + sign * torch.einsum(equation, *parts)
    return Parts(*sums)


def _make_block(value: Any) -> torch.Tensor:
    """Return the real matrix of twice the size that multiplies parts as the complex matrix multiplies numbers."""
    value = split_parts(value)
    upper = torch.cat([value.real, -value.imag], -1)
    return torch.cat([upper, torch.cat([value.imag, value.real], -1)], -2)


def _solve(matrix: Any, right: Any, *, left: bool = True, **checks: Any) -> Any:
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


def _norm(value: Parts, *settings: Any, **named: Any) -> torch.Tensor:
    named.pop("dtype", None)
    norm: torch.Tensor = _ATEN.linalg_vector_norm(_absolute(value), *settings, **named)
    return norm


def _product(value: Parts, dim: int, keepdim: bool = False, **named: Any) -> Parts:
    length, angle = _absolute(value).prod(dim, keepdim), _angle(value).sum(dim, keepdim)
    return _polar(length, angle)


def _convert(value: Any, *, dtype: torch.dtype | None = None, **places: Any) -> Any:
    if dtype is None:
        return value
    if not dtype.is_complex:
        return _first_part(value).to(dtype)
    parts = split_parts(value)
    real = dtype.to_real()
    return Parts(parts.real.to(real), parts.imag.to(real))


def _make_factory(operator: Callable[..., torch.Tensor]) -> Rule:
    """Return the rule of a factory whose dtype is complex."""

    def make(size: Any, *values: Any, dtype: torch.dtype | None = None, **places: Any) -> Parts:
        real = (dtype or torch.complex64).to_real()
        number = complex(*values) if values else None
        shape = list(_first_part(size).shape) if isinstance(size, Parts | torch.Tensor) else size
        if number is None:
            filled = operator(shape, dtype=real)
            return Parts(filled, torch.zeros_like(filled))
        return Parts(torch.full(shape, number.real, dtype=real), torch.full(shape, number.imag, dtype=real))

    return make


def _make_new_factory(operator: Callable[..., torch.Tensor]) -> Rule:
    """Return the rule of a `new_` factory: the tensor it is called on gives only its dtype."""
    make = _make_factory(operator)

    def create(source: Any, size: Any, *values: Any, dtype: torch.dtype | None = None, **places: Any) -> Any:
        if dtype is not None and not dtype.is_complex:
            return operator(size, *values, dtype=dtype)
        return make(size, *values, dtype=dtype)

    return create


def _scalar(number: complex, *, dtype: torch.dtype | None = None, **places: Any) -> Parts:
    real = (dtype or torch.complex64).to_real()
    number = complex(number)
    return Parts(torch.full([], number.real, dtype=real), torch.full([], number.imag, dtype=real))


def _transform_real(x: torch.Tensor, dim: list[int], normalization: int, onesided: bool) -> Parts:
    return take_parts(aten_fft_r2c(x, dim, normalization, onesided))


def _transform_complex(value: Parts, dim: list[int], normalization: int, forward: bool) -> Parts:
    return take_parts(aten_fft_c2c(join_parts(value), dim, normalization, forward))


def _invert_to_real(value: Parts, dim: list[int], normalization: int, last_dim_size: Any) -> torch.Tensor:
    """Invert a one-sided spectrum as a whole one: ONNX Runtime refuses a DFT that is one-sided and inverse."""
    *others, last = dim
    if others:
        value = _transform_complex(value, others, normalization, False)
    last %= value.real.dim()
    half = [part.narrow(last, 0, last_dim_size // 2 + 1) for part in value]
    rest = [part.narrow(last, 1, (last_dim_size + 1) // 2 - 1).flip(last) for part in value]
    both = Parts(torch.cat([half[0], rest[0]], last), torch.cat([half[1], -rest[1]], last))
    return _transform_complex(both, [last], normalization, False).real


def _number_normalization(norm: str | None, forward: bool) -> int:
    """Return torch's number for a normalization: 0 for none, 1 for the root of the length, 2 for the length."""
    if norm == "ortho":
        return 1
    return 2 if (norm == "forward") == forward else 0


def _resize(value: Any, dim: int, length: Any) -> Any:
    """Cut or fill up with zeros, as the length asks for."""
    size = _first_part(value).shape[dim]
    if length is None or statically_known_true(length == size):
        return value
    sym_min: Any = torch.sym_min  # untyped
    sym_max: Any = torch.sym_max  # untyped
    kept, rank = sym_min(length, size), _first_part(value).dim()
    padding = [0, 0] * (rank - 1 - dim % rank) + [0, sym_max(length - size, 0)]

    def resize(part: torch.Tensor) -> torch.Tensor:
        padded: torch.Tensor = _ATEN.constant_pad_nd(part.narrow(dim, 0, kept), padding)
        return padded

    return Parts(*map(resize, value)) if isinstance(value, Parts) else resize(value)


def _make_transform(forward: bool, rank: int | None = 1) -> Rule:
    """Return the rule of a Fourier transform over one dim, over two, or over any number of them."""

    def apply(value: Any, length: Any = None, dim: Any = None, norm: str | None = None) -> Parts:
        value, dims, sizes = _read_dims(split_parts(value), length, dim, rank)
        for d, size in zip(dims, sizes, strict=True):
            value = _resize(value, d, size)
        return _transform_complex(value, dims, _number_normalization(norm, forward), forward)

    return apply


def _make_real_transform(rank: int | None = 1) -> Rule:
    def apply(value: torch.Tensor, length: Any = None, dim: Any = None, norm: str | None = None) -> Parts:
        _, dims, sizes = _read_dims(value, length, dim, rank)
        for d, size in zip(dims, sizes, strict=True):
            value = _resize(value, d, size)
        return _transform_real(value, dims, _number_normalization(norm, True), True)

    return apply


def _make_inverse_real_transform(rank: int | None = 1) -> Rule:
    def apply(value: Any, length: Any = None, dim: Any = None, norm: str | None = None) -> torch.Tensor:
        value, dims, sizes = _read_dims(split_parts(value), length, dim, rank)
        last = sizes[-1] if sizes[-1] is not None else 2 * (value.real.shape[dims[-1]] - 1)
        for d, size in zip(dims, [*sizes[:-1], last // 2 + 1], strict=True):
            value = _resize(value, d, size)
        return _invert_to_real(value, dims, _number_normalization(norm, False), last)

    return apply


def _read_dims(value: Any, length: Any, dim: Any, rank: int | None) -> tuple[Any, list[int], list[Any]]:
    """Return the value, the dims to transform, and the size of each, None for the one it has."""
    count = _first_part(value).dim()
    if rank == 1:
        return value, [(-1 if dim is None else dim) % count], [length]
    sizes = None if length is None else list(length)
    if dim is None:
        number = 2 if rank == 2 else count if sizes is None else len(sizes)
        dim = list(range(count - number, count))
    return value, [d % count for d in dim], [None] * len(dim) if sizes is None else sizes


def make_part_by_part(operator: Callable[..., Any]) -> Rule:
    """Return the rule of an operator that moves, picks or adds numbers: it does the same to each part."""

    def apply(*args: Any, **named: Any) -> Any:
        if named.get("dtype") is not None and not named["dtype"].is_complex:
            return NotImplemented
        results = []
        for part in (0, 1):
            settings = {name: _choose(value, part) for name, value in named.items()}
            if settings.get("dtype") is not None:
                settings["dtype"] = settings["dtype"].to_real()
            results.append(operator(*(_choose(value, part) for value in args), **settings))
        real, imag = results
        if isinstance(real, list | tuple):
            return [Parts(*pair) for pair in zip(real, imag, strict=True)]
        return Parts(real, imag)

    return apply


def _choose(value: Any, part: int) -> Any:
    if isinstance(value, Parts):
        return value[part]
    if isinstance(value, complex):
        return (value.real, value.imag)[part]
    if isinstance(value, list | tuple):
        return [_choose(item, part) for item in value]
    return value


def _make_writer(operator: Callable[..., Any], sources: Sequence[int]) -> Rule:
    """Return the rule of an operator that writes tensors into another: real ones among them have no imaginary part."""
    plain = make_part_by_part(operator)

    def apply(*args: Any, **named: Any) -> Any:
        args = tuple(split_parts(value) if place in sources else value for place, value in enumerate(args))
        return plain(*args, **named)

    return apply


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


def _make_joiner(operator: Callable[..., Any]) -> Rule:
    plain = make_part_by_part(operator)
    return lambda tensors, *settings, **named: plain([split_parts(value) for value in tensors], *settings, **named)


RULES: dict[str, Rule] = {
    **{name: make_part_by_part(getattr(_ATEN, name)) for name in _PART_BY_PART if hasattr(_ATEN, name)},
    **{name: _make_joiner(getattr(_ATEN, name)) for name in ("cat", "stack", "concat")},
    **{name: _make_writer(getattr(_ATEN, name), places) for name, places in _WRITES.items() if places},
    "add": _add,
    "sub": _subtract,
    "rsub": _subtract_from,
    "mul": _multiply,
    "multiply": _multiply,
    "div": _divide,
    "true_divide": _divide,
    "reciprocal": lambda value: _divide(1.0, value),
    "square": lambda value: _multiply(value, value),
    "pow": _power,
    "exp": _exponential,
    "log": _logarithm,
    "sqrt": _take_root,
    "rsqrt": lambda value: _divide(1.0, _take_root(value)),
    "sgn": _sign,
    "cos": _cosine,
    "sin": _sine,
    "sigmoid": _sigmoid,
    "silu": lambda value: _multiply(value, _sigmoid(value)),
    "tanh": _hyperbolic_tangent,
    "abs": _absolute,
    "angle": _angle,
    "real": lambda value: value.real,
    "imag": lambda value: value.imag,
    "view_as_real": lambda value: torch.stack([value.real, value.imag], -1),
    "view_as_complex": lambda pairs: Parts(pairs.select(-1, 0), pairs.select(-1, 1)),
    "complex": Parts,
    "polar": _polar,
    "conj": _conjugate,
    "_conj": _conjugate,
    "_conj_physical": _conjugate,
    "conj_physical": _conjugate,
    "matrix_H": lambda value: Parts(value.real.mT, -value.imag.mT),
    "mH": lambda value: Parts(value.real.mT, -value.imag.mT),
    "adjoint": lambda value: Parts(value.real.mT, -value.imag.mT),
    "resolve_conj": lambda value: value,
    "resolve_neg": lambda value: value,
    "_neg_view": lambda value: Parts(-value.real, -value.imag),
    "eq": _compare_equal,
    "ne": lambda first, other: ~_compare_equal(first, other),
    "isnan": lambda value: value.real.isnan() | value.imag.isnan(),
    "isinf": lambda value: value.real.isinf() | value.imag.isinf(),
    "isfinite": lambda value: value.real.isfinite() & value.imag.isfinite(),
    "where": _where,
    "masked_fill": _mask_fill,
    **{name: _make_bilinear(getattr(_ATEN, name)) for name in ("mm", "bmm", "mv", "dot", "matmul", "outer")},
    "vdot": lambda first, other: _make_bilinear(_ATEN.dot)(_conjugate(first), other),
    "linear": _make_biased(_ATEN.linear),
    "convolution": _make_biased(_ATEN.convolution),
    **{f"conv{n}d": _make_biased(getattr(_ATEN, f"conv{n}d")) for n in (1, 2, 3)},
    "addmm": lambda bias, first, other, beta=1, alpha=1: _add(bias, _make_bilinear(_ATEN.mm)(first, other)),
    "baddbmm": lambda bias, first, other, beta=1, alpha=1: _add(bias, _make_bilinear(_ATEN.bmm)(first, other)),
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
            ("fft", lambda rank: _make_transform(True, rank)),
            ("ifft", lambda rank: _make_transform(False, rank)),
            ("rfft", _make_real_transform),
            ("irfft", _make_inverse_real_transform),
        )
    },
    "_fft_r2c": _transform_real,
    "_fft_c2c": _transform_complex,
    "_fft_c2r": _invert_to_real,
}
"""Rules by the name of the operator without its overload."""
