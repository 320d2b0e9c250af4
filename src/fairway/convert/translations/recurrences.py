"""Orthogonal polynomials by their recurrences, and the greatest common divisor by Euclid's, one ONNX Scan each.

A polynomial's degree is a tensor, so the Scan runs to the largest degree in it, and each element keeps the value of its
own degree. Below degree zero a polynomial is zero, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
    make_number,
    set_type,
    widen,
)

_EUCLID_STEPS = 93
"""Enough for any two integers of 64 bits: the worst are consecutive Fibonacci numbers."""


@script(FAIRWAY_OPSET, op)
def _recurrence(
    x: GraphValue,
    degree: GraphValue,
    first: GraphValue,
    steps: GraphValue,
    slopes: GraphValue,
    offsets: GraphValue,
    weights: GraphValue,
) -> GraphValue:
    """p(k) = (slope x + offset) p(k-1) - weight p(k-2), from p(0) = 1 and p(1) = first, kept where k is the degree."""

    @graph()
    def step(
        before: GraphValue,
        now: GraphValue,
        kept: GraphValue,
        k: GraphValue,
        slope: GraphValue,
        offset: GraphValue,
        weight: GraphValue,
    ) -> GraphValue:
        after = op.Sub(op.Mul(op.Add(op.Mul(slope, x), offset), now), op.Mul(weight, before))
        return op.Identity(now), after, op.Where(op.Equal(degree, k), after, kept)

    unit = op.CastLike(op.Constant(value_float=1.0), x)
    zero = op.CastLike(op.Constant(value_float=0.0), x)
    ones = op.Add(op.Mul(first, zero), unit)
    kept = op.Where(op.Less(degree, unit), ones, first)
    _, _, result = op.Scan(ones, first, kept, steps, slopes, offsets, weights, body=step, num_scan_inputs=4)
    return op.Where(op.Less(degree, zero), zero, result)


@script(FAIRWAY_OPSET, op)
def _euclid(a: GraphValue, b: GraphValue, steps: GraphValue) -> GraphValue:
    @graph()
    def step(now: GraphValue, rest: GraphValue, k: GraphValue) -> GraphValue:
        zero = op.CastLike(op.Constant(value_int=0), now)
        unit = op.CastLike(op.Constant(value_int=1), now)
        done = op.Equal(rest, zero)
        left = op.Mod(now, op.Where(done, unit, rest))
        return op.Where(done, now, rest), op.Where(done, zero, left)

    result, _ = op.Scan(a, b, steps, body=step, num_scan_inputs=1)
    return result


class Family(NamedTuple):
    """The first polynomial as slope and offset, and functions of k that give slope, offset and weight.

    `stretch` replaces x by 2x - 1.
    """

    first: tuple[float, float]
    coefficients: Callable[[GraphValue], tuple[GraphValue, GraphValue, GraphValue]]
    stretch: bool = False
    limit: int | None = None
    """The degree above which PyTorch returns NaN."""


def _repeat_number(value: float, k: GraphValue) -> GraphValue:
    return op.Add(op.Mul(k, _double(0)), _double(value))


def _chebyshev(k: GraphValue) -> tuple[GraphValue, GraphValue, GraphValue]:
    return _repeat_number(2, k), _repeat_number(0, k), _repeat_number(1, k)


def _hermite_h(k: GraphValue) -> tuple[GraphValue, GraphValue, GraphValue]:
    return _repeat_number(2, k), _repeat_number(0, k), op.Sub(op.Add(k, k), _double(2))


def _hermite_he(k: GraphValue) -> tuple[GraphValue, GraphValue, GraphValue]:
    return _repeat_number(1, k), _repeat_number(0, k), op.Sub(k, _double(1))


def _laguerre(k: GraphValue) -> tuple[GraphValue, GraphValue, GraphValue]:
    inverse = op.Div(_double(1), k)
    return op.Neg(inverse), op.Sub(_double(2), inverse), op.Sub(_double(1), inverse)


def _legendre(k: GraphValue) -> tuple[GraphValue, GraphValue, GraphValue]:
    inverse = op.Div(_double(1), k)
    return op.Sub(_double(2), inverse), _repeat_number(0, k), op.Sub(_double(1), inverse)


def _double(value: float) -> GraphValue:
    return make_number(float(value), KIND.DOUBLE)


FAMILIES = {
    "chebyshev_polynomial_t": Family((1, 0), _chebyshev),
    "chebyshev_polynomial_u": Family((2, 0), _chebyshev),
    "chebyshev_polynomial_v": Family((2, -1), _chebyshev),
    "chebyshev_polynomial_w": Family((2, 1), _chebyshev),
    "shifted_chebyshev_polynomial_t": Family((1, 0), _chebyshev, stretch=True),
    "shifted_chebyshev_polynomial_u": Family((2, 0), _chebyshev, stretch=True),
    "shifted_chebyshev_polynomial_v": Family((2, -1), _chebyshev, stretch=True),
    "shifted_chebyshev_polynomial_w": Family((2, 1), _chebyshev, stretch=True),
    "hermite_polynomial_h": Family((2, 0), _hermite_h),
    "hermite_polynomial_he": Family((1, 0), _hermite_he),
    "laguerre_polynomial_l": Family((-1, 1), _laguerre),
    "legendre_polynomial_p": Family((1, 0), _legendre),
}


def _make_polynomial(family: Family) -> Callable[..., GraphValue]:
    def evaluate(x: GraphValue, n: GraphValue) -> GraphValue:
        kind = next((v.dtype for v in (x, n) if isinstance(v, ir.Value) and is_float(v)), KIND.FLOAT)
        point, degree = _as_double(x), op.Cast(op.Cast(_as_double(n), to=KIND.INT64), to=KIND.DOUBLE)
        if family.stretch:
            point = op.Sub(op.Add(point, point), _double(1))
        slope, offset = family.first
        # Adding zero times the degree gives the common shape of the two.
        spread = op.Add(point, op.Mul(degree, _double(0)))
        first = op.Add(op.Mul(_double(slope), spread), _double(offset))
        # ONNX Runtime refuses a Scan of no steps.
        highest = op.Max(op.ReduceMax(op.Reshape(degree, [-1]), [0], keepdims=0), _double(2))
        steps = op.Range(_double(2), op.Add(highest, _double(1)), _double(1))
        result = _recurrence(spread, degree, first, steps, *family.coefficients(steps))
        return set_type(op.Cast(result, to=kind), kind)

    return evaluate


def _as_double(value: GraphValue) -> GraphValue:
    return cast(value, KIND.DOUBLE) if isinstance(value, ir.Value) else _double(value)


def gcd(self: GraphValue, other: GraphValue) -> GraphValue:
    return set_type(op.Cast(_compute_gcd(self, other), to=self.dtype), self)


def _compute_gcd(a: GraphValue, b: GraphValue) -> GraphValue:
    a, b = op.Abs(widen(a)), op.Abs(widen(b))
    nothing = op.Mul(op.Add(a, b), op.Constant(value_int=0))
    steps = op.Constant(value=ir.tensor([0] * _EUCLID_STEPS, dtype=KIND.INT64))
    return _euclid(op.Add(a, nothing), op.Add(b, nothing), steps)


def lcm(self: GraphValue, other: GraphValue) -> GraphValue:
    divisor = _compute_gcd(self, other)
    safe = op.Where(op.Equal(divisor, op.Constant(value_int=0)), op.Constant(value_int=1), divisor)
    result = op.Abs(op.Mul(op.Div(widen(self), safe), widen(other)))
    return set_type(op.Cast(result, to=self.dtype), self)


def _list_polynomials() -> Table:
    table: Table = {}
    for name, family in FAMILIES.items():
        packet = getattr(torch.ops.aten, f"special_{name}")
        table |= {getattr(packet, form): _make_polynomial(family) for form in ("default", "n_scalar", "x_scalar")}
    return table


TABLE: Table = {
    **_list_polynomials(),
    torch.ops.aten.gcd.default: gcd,
    torch.ops.aten.lcm.default: lcm,
}
