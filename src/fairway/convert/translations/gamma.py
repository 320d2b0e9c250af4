"""Hurwitz' zeta function, polygamma and the incomplete gamma functions, computed in double.

zeta adds terms until the Euler-Maclaurin formula is valid for the rest. The incomplete gamma functions are a series
below the maximum of the integrand, and a continued fraction above it; both take a number of steps that grows with the
root of the largest first argument.
"""

from __future__ import annotations

import math

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
    make_number,
    set_type,
)
from fairway.convert.translations.special import digamma, lgamma

_BERNOULLI_NUMBERS = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
    7 / 6,
    -3617 / 510,
    43867 / 798,
    -174611 / 330,
)
_TERMS_ADDED = 10
_MAX_TERMS = 5000


def zeta(self: GraphValue, other: GraphValue) -> GraphValue:
    kind = next((v.dtype for v in (self, other) if hasattr(v, "dtype") and is_float(v)), KIND.FLOAT)
    return set_type(op.Cast(_compute_zeta(_as_double(self), _as_double(other)), to=kind), kind)


def _compute_zeta(s: GraphValue, q: GraphValue) -> GraphValue:
    zero, unit = _double(0), _double(1)
    is_legal = op.Greater(s, unit)
    power = op.Where(is_legal, s, _double(2))
    lowest = op.ReduceMin(op.Concat(op.Reshape(q, [-1]), op.Reshape(unit, [1]), axis=0), [0], keepdims=0)
    lowest = op.Where(op.IsNaN(lowest), unit, lowest)
    count = op.Min(op.Sub(_double(_TERMS_ADDED), op.Floor(lowest)), _double(_MAX_TERMS))
    count = op.Max(count, _double(_TERMS_ADDED))
    shifted = op.Add(op.Unsqueeze(op.Add(q, op.Mul(power, zero)), [-1]), op.Range(zero, count, unit))
    total = op.ReduceSum(op.Pow(shifted, op.Neg(op.Unsqueeze(power, [-1]))), [-1], keepdims=0)
    w = op.Add(q, count)
    last = op.Pow(w, op.Neg(power))
    total = op.Add(total, op.Add(op.Div(op.Mul(last, w), op.Sub(power, unit)), op.Mul(last, _double(0.5))))
    factor, scale = op.Mul(power, op.Div(last, w)), op.Mul(w, w)
    for k, bernoulli in enumerate(_BERNOULLI_NUMBERS, start=1):
        total = op.Add(total, op.Mul(_double(bernoulli / math.factorial(2 * k)), factor))
        growth = op.Mul(op.Add(power, _double(2 * k - 1)), op.Add(power, _double(2 * k)))
        factor = op.Mul(factor, op.Div(growth, scale))
    is_whole = op.Equal(q, op.Floor(q))
    below = op.LessOrEqual(q, zero)
    odd = op.And(below, op.Not(op.Equal(power, op.Floor(power))))
    total = op.Where(op.Or(odd, op.Not(is_legal)), _double(math.nan), total)
    total = op.Where(op.And(is_legal, op.And(below, is_whole)), _double(math.inf), total)
    return op.Where(op.Equal(s, unit), _double(math.inf), total)


def polygamma(n: int, self: GraphValue) -> GraphValue:
    if n == 0:
        return digamma(self)
    kind = self.dtype if is_float(self) else KIND.FLOAT
    sign = 1.0 if n % 2 else -1.0
    result = _compute_zeta(_double(n + 1), _as_double(self))
    result = op.Mul(_double(sign * math.factorial(n)), result)
    return set_type(op.Cast(result, to=kind), kind)


@script(FAIRWAY_OPSET, op)
def _series(a: GraphValue, x: GraphValue, steps: GraphValue) -> GraphValue:
    """Σ xⁿ / ((a+1) … (a+n))."""

    @graph()
    def step(total: GraphValue, term: GraphValue, n: GraphValue) -> GraphValue:
        after = op.Div(op.Mul(term, x), op.Add(a, n))
        return op.Add(total, after), op.Identity(after)

    unit = op.CastLike(op.Constant(value_float=1.0), a)
    ones = op.Add(op.Sub(a, a), unit)
    result, _ = op.Scan(ones, ones, steps, body=step, num_scan_inputs=1)
    return result


@script(FAIRWAY_OPSET, op)
def _fraction(a: GraphValue, x: GraphValue, steps: GraphValue) -> GraphValue:
    """The continued fraction of the upper function by Lentz' method."""

    @graph()
    def step(value: GraphValue, numerator: GraphValue, denominator: GraphValue, n: GraphValue) -> GraphValue:
        unit = op.CastLike(op.Constant(value_float=1.0), value)
        factor = op.Mul(n, op.Sub(a, n))
        partial = op.Add(op.Add(op.Sub(x, a), op.Add(n, n)), unit)
        under = op.Div(unit, op.Add(partial, op.Mul(factor, denominator)))
        over = op.Add(partial, op.Div(factor, numerator))
        return op.Mul(value, op.Mul(over, under)), over, under

    unit = op.CastLike(op.Constant(value_float=1.0), a)
    first = op.Add(op.Sub(x, a), unit)
    start = op.Div(unit, first)
    # Lentz starts with a numerator that is as good as infinite.
    large = op.Add(op.Sub(a, a), op.Div(unit, op.CastLike(op.Constant(value_float=1e-30), a)))
    result, _, _ = op.Scan(start, large, start, steps, body=step, num_scan_inputs=1)
    return result


def igamma(self: GraphValue, other: GraphValue) -> GraphValue:
    return _compute_incomplete(self, other, is_upper=False)


def igammac(self: GraphValue, other: GraphValue) -> GraphValue:
    return _compute_incomplete(self, other, is_upper=True)


def _compute_incomplete(self: GraphValue, other: GraphValue, is_upper: bool) -> GraphValue:
    zero, unit, nan = _double(0), _double(1), _double(math.nan)
    given, x = _as_double(self), _as_double(other)
    spread = op.Mul(op.Add(_make_finite(given), _make_finite(x)), zero)
    given, x = op.Add(given, spread), op.Add(x, spread)
    is_ordinary = op.And(op.Greater(_make_finite(given), zero), op.Greater(_make_finite(x), zero))
    a, t = op.Where(is_ordinary, given, unit), op.Where(is_ordinary, x, unit)
    highest = op.ReduceMax(op.Concat(op.Reshape(a, [-1]), op.Reshape(unit, [1]), axis=0), [0], keepdims=0)
    count = op.Min(op.Add(_double(60), op.Mul(_double(10), op.Sqrt(highest))), _double(_MAX_TERMS))
    steps = op.Range(unit, op.Floor(count), unit)
    power = op.Sub(op.Sub(op.Mul(a, op.Log(t)), t), lgamma(set_type(a, KIND.DOUBLE)))
    is_below = op.LessOrEqual(t, op.Add(a, unit))
    low = op.Div(op.Mul(op.Exp(power), _series(a, op.Where(is_below, t, unit), steps)), a)
    high = op.Mul(op.Exp(power), _fraction(a, op.Where(is_below, op.Add(a, _double(2)), t), steps))
    if is_upper:
        result = op.Where(is_below, op.Sub(unit, low), high)
        at_zero, beyond = unit, zero
    else:
        result = op.Where(is_below, low, op.Sub(unit, high))
        at_zero, beyond = zero, unit
    # a = 0 is a step at x = 0, and an infinite a puts all of it at infinity.
    result = op.Where(op.Equal(x, zero), op.Where(op.Equal(given, zero), nan, at_zero), result)
    result = op.Where(op.And(op.Equal(given, zero), op.Greater(x, zero)), beyond, result)
    result = op.Where(op.IsInf(given), at_zero, result)
    result = op.Where(op.IsInf(x), op.Where(op.IsInf(given), nan, beyond), result)
    broken = op.Or(
        op.IsNaN(op.Add(_drop_infinity(given), _drop_infinity(x))), op.Or(op.Less(given, zero), op.Less(x, zero))
    )
    result = op.Where(broken, nan, result)
    kind = self.dtype if is_float(self) else KIND.FLOAT
    return set_type(op.Cast(result, to=kind), kind)


def _drop_infinity(value: GraphValue) -> GraphValue:
    """Return the value with infinities as zeros, so that a sum is NaN only for a NaN."""
    return op.Where(op.IsInf(value), _double(0), value)


def _make_finite(value: GraphValue) -> GraphValue:
    """Return the value with zeros for infinities and NaN."""
    return op.Where(op.Or(op.IsInf(value), op.IsNaN(value)), _double(0), value)


def _as_double(value: GraphValue) -> GraphValue:
    return cast(value, KIND.DOUBLE) if hasattr(value, "dtype") else _double(value)


def _double(value: float) -> GraphValue:
    return make_number(float(value), KIND.DOUBLE)


TABLE: Table = {
    torch.ops.aten.special_zeta.default: zeta,
    torch.ops.aten.special_zeta.self_scalar: zeta,
    torch.ops.aten.special_zeta.other_scalar: zeta,
    torch.ops.aten.polygamma.default: polygamma,
    torch.ops.aten.igamma.default: igamma,
    torch.ops.aten.igammac.default: igammac,
}
