"""Inverse error functions, gamma functions, and arithmetic that minds signs and NaN.

torch ends in an operator of its own (prims) for all of these. Special functions are computed in double whatever the
input's type, by the usual reductions: erfinv by polynomials of log(1 - x²), lgamma and digamma by moving the argument
up to where Stirling's series holds, and by reflection below zero.

Left out: nextafter and view(dtype) need the bits of a number, which ONNX cannot read before opset 26; gcd and lcm are
loops; frexp's exponent cannot be found exactly by a logarithm; Bessel functions, polygamma, zeta and igamma.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import graph, script
from onnxscript import opset18 as op

from fairway.convert.translations.builders import KIND, OWN, Table, cast, is_float, is_none, like, number, typed
from fairway.convert.translations.polynomials import INVERSE_FAR, INVERSE_NEAR, INVERSE_TAIL, Polynomial


def erfinv(self: Any) -> Any:
    return _in_double(self, lambda x: _inverse(x, op.Mul(op.Sub(_d(1), x), op.Add(_d(1), x))))


def ndtri(self: Any) -> Any:
    """√2 erfinv(2p - 1), without rounding a small p away."""

    def quantile(p: Any) -> Any:
        x = op.Sub(op.Add(p, p), _d(1))
        return op.Mul(_d(math.sqrt(2)), _inverse(x, op.Mul(op.Mul(_d(4), p), op.Sub(_d(1), p))))

    return _in_double(self, quantile)


def _inverse(x: Any, rest: Any) -> Any:
    """erfinv(x), where `rest` is 1 - x²."""
    w = op.Neg(op.Log(rest))
    root = op.Sqrt(w)
    near = polynomial(INVERSE_NEAR, w)
    far = polynomial(INVERSE_FAR, root)
    tail = op.Mul(root, polynomial(INVERSE_TAIL, op.Div(_d(1), root)))
    ratio = op.Where(op.Less(w, _d(6.25)), near, op.Where(op.Less(root, _d(4)), far, tail))
    ends = op.Equal(rest, _d(0))
    return op.Where(ends, op.Mul(x, _d(math.inf)), op.Mul(x, ratio))


def lgamma(self: Any) -> Any:
    def logarithm(x: Any) -> Any:
        below = op.Less(x, _d(0.5))
        up = op.Where(below, op.Sub(_d(1), x), x)
        _, logarithms = _sums(_zeros(up), up, _steps())
        high = op.Add(up, _d(8))
        inverse = op.Div(_d(1), high)
        series = _series(op.Mul(inverse, inverse), (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360))
        stirling = op.Sub(op.Mul(op.Sub(high, _d(0.5)), op.Log(high)), high)
        stirling = op.Add(stirling, op.Add(_d(0.5 * math.log(2 * math.pi)), op.Mul(inverse, series)))
        above = op.Sub(stirling, logarithms)
        mirrored = op.Sub(op.Log(op.Div(_d(math.pi), op.Abs(_sine(x)))), above)
        return op.Where(op.IsInf(x), _d(math.inf), op.Where(below, mirrored, above))

    return _in_double(self, logarithm)


def digamma(self: Any) -> Any:
    def derivative(x: Any) -> Any:
        below = op.Less(x, _d(0.5))
        up = op.Where(below, op.Sub(_d(1), x), x)
        steps, _ = _sums(_zeros(up), up, _steps())
        high = op.Add(up, _d(8))
        inverse = op.Div(_d(1), high)
        square = op.Mul(inverse, inverse)
        series = _series(square, (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12))
        above = op.Sub(op.Log(high), op.Mul(_d(0.5), inverse))
        above = op.Sub(op.Sub(above, op.Mul(square, series)), steps)
        apart = op.Sub(x, op.Floor(x))
        mirrored = op.Sub(above, op.Div(op.Mul(_d(math.pi), _cosine(x)), _sine(x)))
        pole = op.Where(op.Equal(x, _d(0)), op.Neg(op.Div(_d(1), x)), _d(math.nan))
        mirrored = op.Where(op.Equal(apart, _d(0)), pole, mirrored)
        return op.Where(below, mirrored, above)

    return _in_double(self, derivative)


def scalar_tensor(s: Any, dtype: int = -1, **_: Any) -> Any:
    if isinstance(s, ir.Value):  # a size, or a number computed from one
        return cast(s, KIND.FLOAT if is_none(dtype) else KIND(dtype))
    return op.Constant(value=ir.tensor(s, dtype=KIND.FLOAT if is_none(dtype) else KIND(dtype)))


def hypot(self: Any, other: Any) -> Any:
    """Scaled by the larger, so that squares neither overflow nor vanish."""
    a, b = op.Abs(self), op.Abs(other)
    large, small = op.Max(a, b), op.Min(a, b)
    plain = op.Or(op.Equal(large, number(0.0, self)), op.IsInf(large))
    ratio = op.Where(plain, number(0.0, self), op.Div(small, op.Where(plain, number(1.0, self), large)))
    length = op.Mul(large, op.Sqrt(op.Add(op.Mul(ratio, ratio), number(1.0, self))))
    infinite = op.Or(op.IsInf(a), op.IsInf(b))  # also beside a NaN
    return op.Where(infinite, number(math.inf, self), length)


def copysign(self: Any, other: Any) -> Any:
    size = op.Abs(self if is_float(self) else cast(self, KIND.FLOAT))
    if isinstance(other, int | float):
        return op.Neg(size) if math.copysign(1.0, other) < 0 else size
    zero = number(0, other)
    below = op.Less(other, zero)
    if is_float(other):  # minus zero, by its inverse
        below = op.Or(below, op.Less(op.Div(number(1.0, other), other), zero))
    return op.Where(below, op.Neg(size), size)


def fmax(self: Any, other: Any) -> Any:
    return _known(self, other, op.Max)


def fmin(self: Any, other: Any) -> Any:
    return _known(self, other, op.Min)


def _known(self: Any, other: Any, pick: Callable[..., Any]) -> Any:
    """The other one where one is NaN."""
    if not is_float(self):
        return pick(self, other)
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, pick(self, other)))


def polynomial(of: Polynomial, x: Any) -> Any:
    return _series(op.Div(op.Sub(x, _d(of.middle)), _d(of.half)), of.terms)


def _series(x: Any, terms: tuple[float, ...]) -> Any:
    return _horner(_zeros(x), x, op.Constant(value=ir.tensor(terms[::-1], dtype=KIND.DOUBLE)))


@script(OWN, op)
def _horner(zeros: Any, x: Any, terms: Any) -> Any:
    @graph()
    def step(total: Any, term: Any) -> Any:
        return op.Add(op.Mul(total, x), term)

    result = op.Scan(zeros, terms, body=step, num_scan_inputs=1)
    return result


@script(OWN, op)
def _sums(zeros: Any, x: Any, steps: Any) -> tuple[Any, Any]:
    """Σ 1 / (x + step) and Σ log(x + step)."""

    @graph()
    def step(inverses: Any, logarithms: Any, one: Any) -> Any:
        now = op.Add(x, one)
        return op.Add(inverses, op.Reciprocal(now)), op.Add(logarithms, op.Log(now))

    inverses, logarithms = op.Scan(zeros, zeros, steps, body=step, num_scan_inputs=1)
    return inverses, logarithms


def _sine(x: Any) -> Any:
    """sin(πx), from the nearest whole number so that it is zero there."""
    nearest = op.Round(x)
    odd = op.Sub(_d(1), op.Mul(_d(2), op.Abs(op.Mod(nearest, _d(2), fmod=1))))
    return op.Mul(odd, op.Sin(op.Mul(_d(math.pi), op.Sub(x, nearest))))


def _cosine(x: Any) -> Any:
    nearest = op.Round(x)
    odd = op.Sub(_d(1), op.Mul(_d(2), op.Abs(op.Mod(nearest, _d(2), fmod=1))))
    return op.Mul(odd, op.Cos(op.Mul(_d(math.pi), op.Sub(x, nearest))))


def _steps() -> Any:
    return op.Constant(value=ir.tensor([float(step) for step in range(8)], dtype=KIND.DOUBLE))


def _zeros(x: Any) -> Any:
    return op.Expand(_d(0), op.Shape(x))


def _d(value: float) -> Any:
    return number(float(value), KIND.DOUBLE)


def _in_double(self: Any, function: Callable[[Any], Any]) -> Any:
    kind = self.dtype if is_float(self) else KIND.FLOAT
    result = function(cast(self, KIND.DOUBLE))
    return result if kind == KIND.DOUBLE else typed(op.Cast(result, to=kind), kind)


def log_sigmoid(self: Any) -> Any:
    """min(x, 0) - log(1 + exp(-|x|)), where nothing underflows before the logarithm."""
    one, zero = (like(op.CastLike(number(value, KIND.FLOAT), self), self) for value in (1, 0))
    rest = op.Log(op.Add(one, op.Exp(op.Neg(op.Abs(self)))))
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
}
