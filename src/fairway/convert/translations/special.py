"""Inverse error functions, gamma functions, and arithmetic with signs and NaN.

torch decomposes all of these to operators without a translation (prims). Special functions are computed in double for
every input type, by the usual reductions: erfinv by polynomials of log(1 - x²), lgamma and digamma by increasing the
argument until Stirling's series is valid, and by reflection below zero.

Not included: view(dtype), which needs the bits of a number that ONNX cannot read before opset 26.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import graph, script
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    FAIRWAY_OPSET,
    KIND,
    GraphValue,
    Table,
    cast,
    is_float,
    is_none,
    make_number,
    set_like,
    set_type,
)
from fairway.convert.translations.polynomials import INVERSE_FAR, INVERSE_NEAR, INVERSE_TAIL, Polynomial


def erfinv(self: GraphValue) -> GraphValue:
    return _compute_in_double(
        self, lambda x: _inverse_erf(x, op.Mul(op.Sub(_make_double(1), x), op.Add(_make_double(1), x)))
    )


def ndtri(self: GraphValue) -> GraphValue:
    """Compute √2 erfinv(2p - 1) without rounding a small p away."""

    def quantile(p: GraphValue) -> GraphValue:
        x = op.Sub(op.Add(p, p), _make_double(1))
        return op.Mul(
            _make_double(math.sqrt(2)), _inverse_erf(x, op.Mul(op.Mul(_make_double(4), p), op.Sub(_make_double(1), p)))
        )

    return _compute_in_double(self, quantile)


def _inverse_erf(x: GraphValue, rest: GraphValue) -> GraphValue:
    """Compute erfinv(x), where `rest` is 1 - x²."""
    w = op.Neg(op.Log(rest))
    root = op.Sqrt(w)
    near = evaluate_polynomial(INVERSE_NEAR, w)
    far = evaluate_polynomial(INVERSE_FAR, root)
    tail = op.Mul(root, evaluate_polynomial(INVERSE_TAIL, op.Div(_make_double(1), root)))
    ratio = op.Where(op.Less(w, _make_double(6.25)), near, op.Where(op.Less(root, _make_double(4)), far, tail))
    ends = op.Equal(rest, _make_double(0))
    return op.Where(ends, op.Mul(x, _make_double(math.inf)), op.Mul(x, ratio))


def lgamma(self: GraphValue) -> GraphValue:
    def logarithm(x: GraphValue) -> GraphValue:
        below = op.Less(x, _make_double(0.5))
        up = op.Where(below, op.Sub(_make_double(1), x), x)
        _, logarithms = _sums(_make_zeros(up), up, _make_steps())
        high = op.Add(up, _make_double(8))
        inverse = op.Div(_make_double(1), high)
        series = _sum_series(op.Mul(inverse, inverse), (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360))
        stirling = op.Sub(op.Mul(op.Sub(high, _make_double(0.5)), op.Log(high)), high)
        stirling = op.Add(stirling, op.Add(_make_double(0.5 * math.log(2 * math.pi)), op.Mul(inverse, series)))
        above = op.Sub(stirling, logarithms)
        mirrored = op.Sub(op.Log(op.Div(_make_double(math.pi), op.Abs(_sin_pi(x)))), above)
        return op.Where(op.IsInf(x), _make_double(math.inf), op.Where(below, mirrored, above))

    return _compute_in_double(self, logarithm)


def digamma(self: GraphValue) -> GraphValue:
    def derivative(x: GraphValue) -> GraphValue:
        below = op.Less(x, _make_double(0.5))
        up = op.Where(below, op.Sub(_make_double(1), x), x)
        steps, _ = _sums(_make_zeros(up), up, _make_steps())
        high = op.Add(up, _make_double(8))
        inverse = op.Div(_make_double(1), high)
        square = op.Mul(inverse, inverse)
        series = _sum_series(square, (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12))
        above = op.Sub(op.Log(high), op.Mul(_make_double(0.5), inverse))
        above = op.Sub(op.Sub(above, op.Mul(square, series)), steps)
        apart = op.Sub(x, op.Floor(x))
        mirrored = op.Sub(above, op.Div(op.Mul(_make_double(math.pi), _cos_pi(x)), _sin_pi(x)))
        pole = op.Where(op.Equal(x, _make_double(0)), op.Neg(op.Div(_make_double(1), x)), _make_double(math.nan))
        mirrored = op.Where(op.Equal(apart, _make_double(0)), pole, mirrored)
        return op.Where(below, mirrored, above)

    return _compute_in_double(self, derivative)


def scalar_tensor(s: GraphValue, dtype: int = -1, **_: GraphValue) -> GraphValue:
    if isinstance(s, ir.Value):  # a size, or a number computed from one
        return cast(s, KIND.FLOAT if is_none(dtype) else KIND(dtype))
    return op.Constant(value=ir.tensor(s, dtype=KIND.FLOAT if is_none(dtype) else KIND(dtype)))


def hypot(self: GraphValue, other: GraphValue) -> GraphValue:
    """Scale by the larger number, so that squares neither overflow nor vanish."""
    a, b = op.Abs(self), op.Abs(other)
    large, small = op.Max(a, b), op.Min(a, b)
    plain = op.Or(op.Equal(large, make_number(0.0, self)), op.IsInf(large))
    ratio = op.Where(plain, make_number(0.0, self), op.Div(small, op.Where(plain, make_number(1.0, self), large)))
    length = op.Mul(large, op.Sqrt(op.Add(op.Mul(ratio, ratio), make_number(1.0, self))))
    infinite = op.Or(op.IsInf(a), op.IsInf(b))  # also if the other is NaN
    return op.Where(infinite, make_number(math.inf, self), length)


def copysign(self: GraphValue, other: GraphValue) -> GraphValue:
    size = op.Abs(self if is_float(self) else cast(self, KIND.FLOAT))
    if isinstance(other, int | float):
        return op.Neg(size) if math.copysign(1.0, other) < 0 else size
    return op.Where(_is_negative(other), op.Neg(size), size)


def _is_negative(x: GraphValue) -> GraphValue:
    zero = make_number(0, x)
    below = op.Less(x, zero)
    if is_float(x):  # minus zero, by its inverse
        below = op.Or(below, op.Less(op.Div(make_number(1.0, x), x), zero))
    return below


def atan2(self: GraphValue, other: GraphValue) -> GraphValue:
    """Compute the angle from the sizes of both numbers, then turn it by their signs, also by those of zeros."""
    y, x = (value if is_float(value) else cast(value, KIND.FLOAT) for value in (self, other))
    a, b, zero = op.Abs(y), op.Abs(x), make_number(0.0, y)
    angle = op.Atan(op.Div(a, b))
    angle = op.Where(op.And(op.Equal(a, zero), op.Equal(b, zero)), zero, angle)
    angle = op.Where(op.And(op.IsInf(a), op.IsInf(b)), make_number(math.pi / 4, y), angle)
    angle = op.Where(_is_negative(x), op.Sub(make_number(math.pi, y), angle), angle)
    return op.Where(_is_negative(y), op.Neg(angle), angle)


def fmax(self: GraphValue, other: GraphValue) -> GraphValue:
    return _pick_known(self, other, op.Max)


def fmin(self: GraphValue, other: GraphValue) -> GraphValue:
    return _pick_known(self, other, op.Min)


def _pick_known(self: GraphValue, other: GraphValue, pick: Callable[..., GraphValue]) -> GraphValue:
    """Pick one of two values, and the other one if it is NaN."""
    if not is_float(self):
        return pick(self, other)
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, pick(self, other)))


def evaluate_polynomial(polynomial: Polynomial, x: GraphValue) -> GraphValue:
    scaled = op.Div(op.Sub(x, _make_double(polynomial.middle)), _make_double(polynomial.half))
    return _sum_series(scaled, polynomial.terms)


def _sum_series(x: GraphValue, terms: tuple[float, ...]) -> GraphValue:
    return _horner(_make_zeros(x), x, op.Constant(value=ir.tensor(terms[::-1], dtype=KIND.DOUBLE)))


@script(FAIRWAY_OPSET, op)
def _horner(zeros: Any, x: Any, terms: Any) -> Any:
    @graph()
    def step(total: Any, term: Any) -> Any:
        return op.Add(op.Mul(total, x), term)

    result = op.Scan(zeros, terms, body=step, num_scan_inputs=1)
    return result


@script(FAIRWAY_OPSET, op)
def _sums(zeros: Any, x: Any, steps: Any) -> tuple[Any, Any]:
    """Return Σ 1 / (x + step) and Σ log(x + step) over the steps by which x is increased."""

    @graph()
    def step(inverses: Any, logarithms: Any, one: Any) -> Any:
        now = op.Add(x, one)
        return op.Add(inverses, op.Reciprocal(now)), op.Add(logarithms, op.Log(now))

    inverses, logarithms = op.Scan(zeros, zeros, steps, body=step, num_scan_inputs=1)
    return inverses, logarithms


def _sin_pi(x: GraphValue) -> GraphValue:
    """Compute sin(πx) from the nearest integer, so that it is zero there."""
    nearest = op.Round(x)
    odd = op.Sub(_make_double(1), op.Mul(_make_double(2), op.Abs(op.Mod(nearest, _make_double(2), fmod=1))))
    return op.Mul(odd, op.Sin(op.Mul(_make_double(math.pi), op.Sub(x, nearest))))


def _cos_pi(x: GraphValue) -> GraphValue:
    nearest = op.Round(x)
    odd = op.Sub(_make_double(1), op.Mul(_make_double(2), op.Abs(op.Mod(nearest, _make_double(2), fmod=1))))
    return op.Mul(odd, op.Cos(op.Mul(_make_double(math.pi), op.Sub(x, nearest))))


def _make_steps() -> GraphValue:
    return op.Constant(value=ir.tensor([float(step) for step in range(8)], dtype=KIND.DOUBLE))


def _make_zeros(x: GraphValue) -> GraphValue:
    return op.Expand(_make_double(0), op.Shape(x))


def _make_double(value: float) -> GraphValue:
    return make_number(float(value), KIND.DOUBLE)


def _compute_in_double(self: GraphValue, function: Callable[[GraphValue], GraphValue]) -> GraphValue:
    kind = self.dtype if is_float(self) else KIND.FLOAT
    result = function(cast(self, KIND.DOUBLE))
    return result if kind == KIND.DOUBLE else set_type(op.Cast(result, to=kind), kind)


def log_sigmoid(self: GraphValue) -> GraphValue:
    """Compute min(x, 0) - log(1 + exp(-|x|)), in which nothing underflows before the logarithm."""
    unit, zero = (set_like(op.CastLike(make_number(value, KIND.FLOAT), self), self) for value in (1, 0))
    rest = op.Log(op.Add(unit, op.Exp(op.Neg(op.Abs(self)))))
    return op.Sub(op.Where(op.Less(self, zero), self, zero), rest)


TABLE: Table = {
    torch.ops.aten.scalar_tensor.default: scalar_tensor,
    torch.ops.aten.erfinv.default: erfinv,
    torch.ops.aten.special_ndtri.default: ndtri,
    torch.ops.aten.lgamma.default: lgamma,
    torch.ops.aten.digamma.default: digamma,
    torch.ops.aten.hypot.default: hypot,
    torch.ops.aten.copysign.Tensor: copysign,
    torch.ops.aten.copysign.Scalar: copysign,
    torch.ops.aten.fmax.default: fmax,
    torch.ops.aten.fmin.default: fmin,
    torch.ops.aten.log_sigmoid.default: log_sigmoid,
    torch.ops.aten.atan2.default: atan2,
}
