"""Operators that work element by element: arithmetic, comparisons, choices, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from kinds import FLOATS, INTS, Kind, broadcast, promote
from program import Program, SkipError, Value, scalar

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


FLOAT_UNARY: dict[str, Callable[[Any], Any]] = {
    "torch.relu({})": lambda x: np.maximum(x, 0),
    "torch.tanh({})": np.tanh,
    "torch.sigmoid({})": _sigmoid,
    "torch.exp({}.clamp(-3.0, 3.0))": lambda x: np.exp(np.clip(x, -3, 3)),
    "F.gelu({})": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "F.silu({})": lambda x: x * _sigmoid(x),
    "F.softplus({})": lambda x: np.logaddexp(x, 0),
    "F.elu({})": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "F.leaky_relu({}, 0.25)": lambda x: np.where(x > 0, x, 0.25 * x),
    "F.hardtanh({})": lambda x: np.clip(x, -1, 1),
    "F.hardswish({})": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "F.logsigmoid({})": lambda x: -np.logaddexp(-x, 0),
    "torch.sin({})": np.sin,
    "torch.cos({})": np.cos,
    "torch.atan({})": np.arctan,
    "torch.erf({})": _erf,
    "{}.abs()": np.abs,
    "-{}": np.negative,
    "{}.square()": np.square,
    "{} ** 3": lambda x: x**3,
    "torch.sqrt({}.abs() + 0.5)": lambda x: np.sqrt(np.abs(x) + 0.5),
    "torch.rsqrt({}.square() + 1.0)": lambda x: 1 / np.sqrt(x * x + 1),
    "torch.log1p({}.abs())": lambda x: np.log1p(np.abs(x)),
    "torch.log({}.abs() + 0.5)": lambda x: np.log(np.abs(x) + 0.5),
    "torch.reciprocal({}.abs() + 1.0)": lambda x: 1 / (np.abs(x) + 1),
    "torch.floor({})": np.floor,
    "torch.ceil({})": np.ceil,
    "torch.round({})": np.round,
    "torch.trunc({})": np.trunc,
    "torch.frac({})": lambda x: x - np.trunc(x),
    "torch.sign({})": np.sign,
    "{}.clamp(min=-0.5)": lambda x: np.maximum(x, -0.5),
    "{}.clamp(-1.25, 0.75)": lambda x: np.clip(x, -1.25, 0.75),
}

INT_UNARY: dict[str, Callable[[Any], Any]] = {
    "-{}": np.negative,
    "{}.abs()": np.abs,
    "{} * 3": lambda x: x * 3,
    "{} + 5": lambda x: x + 5,
    "7 - {}": lambda x: 7 - x,
    "{} // 3": lambda x: x // 3,
    "{} // -2": lambda x: x // -2,
    "{} % 4": lambda x: x % 4,
    "{} % -3": lambda x: x % -3,
    "torch.fmod({}, 4)": lambda x: np.fmod(x, 4),
    "torch.div({}, 3, rounding_mode='trunc')": lambda x: np.trunc(x / 3),
    "torch.div({}, -3, rounding_mode='floor')": lambda x: x // -3,
    "{}.clamp(-2, 4)": lambda x: np.clip(x, -2, 4),
    "{} >> 1": lambda x: x >> 1,
    "{} << 2": lambda x: x << 2,
    "{} & 6": lambda x: x & 6,
    "{} | 9": lambda x: x | 9,
    "{} ^ 5": lambda x: x ^ 5,
    "~{}": np.invert,
    "{}.square()": np.square,
    "torch.sign({})": np.sign,
}

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "{} + {}": np.add,
    "{} - {}": np.subtract,
    "{} * {}": np.multiply,
    "torch.maximum({}, {})": np.maximum,
    "torch.minimum({}, {})": np.minimum,
}

FLOAT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "{} / ({}.abs() + 1.0)": lambda x, y: x / (np.abs(y) + 1),
    "torch.atan2({}, {}.abs() + 0.5)": lambda x, y: np.arctan2(x, np.abs(y) + 0.5),
    "torch.hypot({}, {})": np.hypot,
    "torch.pow({}.abs() + 0.5, {}.clamp(-2.0, 2.0))": lambda x, y: np.power(np.abs(x) + 0.5, np.clip(y, -2, 2)),
    "torch.remainder({}, {}.abs() + 0.5)": lambda x, y: np.mod(x, np.abs(y) + 0.5),
    "torch.fmod({}, {}.abs() + 0.5)": lambda x, y: np.fmod(x, np.abs(y) + 0.5),
    "torch.logaddexp({}, {})": np.logaddexp,
    "torch.lerp({}, {}, 0.25)": lambda x, y: x + 0.25 * (y - x),
}

INT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "{} // ({}.abs() + 1)": lambda x, y: x // (np.abs(y) + 1),
    "{} % ({}.abs() + 2)": lambda x, y: x % (np.abs(y) + 2),
    "{} & {}": np.bitwise_and,
    "{} | {}": np.bitwise_or,
    "{} ^ {}": np.bitwise_xor,
    "{} >> ({} & 3)": lambda x, y: x >> (y & 3),
    "{} << ({} & 3)": lambda x, y: x << (y & 3),
}

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "{} > {}": np.greater,
    "{} <= {}": np.less_equal,
    "{} == {}": np.equal,
    "{} != {}": np.not_equal,
}

BOOL_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "{} & {}": np.logical_and,
    "torch.logical_or({}, {})": np.logical_or,
    "{} ^ {}": np.logical_xor,
}


NOT_EXPORTED = ("hypot", "<<", ">>", "|", "^", "~", "logaddexp", "logsigmoid")
"""What exporters refuse or get wrong most often; drawn seldom, so that programs get further than that."""


def entry(p: Program, table: dict[str, Callable[..., Any]]) -> tuple[str, Callable[..., Any]]:
    seldom = p.rng.random() < 0.2
    found: tuple[str, Callable[..., Any]] = p.one(
        [(text, f) for text, f in table.items() if seldom or not any(word in text for word in NOT_EXPORTED)]
    )
    return found


def unary(p: Program) -> None:
    x = p.pick(lambda kind: kind.is_float or kind.is_int)
    text, function = entry(p, FLOAT_UNARY if x.kind.is_float else INT_UNARY)
    p.emit(text.format("x"), x.kind, text.format(x), lambda at, a: function(a), x)


def with_scalar(p: Program) -> None:
    x = p.pick(lambda kind: kind.is_float)
    number = scalar(p.rng)
    text, function = p.one([(t, f) for t, f in BINARY.items() if not t.startswith("torch")] + [("{} / {}", np.divide)])
    p.emit(f"scalar {text}", x.kind, text.format(x, f"({number})"), lambda at, a: function(a, number), x)


def partner(p: Program, x: Value, wanted: Callable[[Kind], bool]) -> tuple[Value, Kind]:
    """Another value that `x` can be broadcast with, and the kind of what comes out."""
    y = p.pick(lambda kind: wanted(kind) and kind.rank > 0 and broadcast(x.kind.shape, kind.shape) is not None)
    shape = broadcast(x.kind.shape, y.kind.shape)
    assert shape is not None
    return y, Kind(promote(x.kind.dtype, y.kind.dtype), shape)


def binary(p: Program) -> None:
    """Also of two dtypes, which torch promotes and ONNX does not."""
    x = p.pick(lambda kind: not kind.is_bool and kind.rank > 0)
    y, kind = partner(p, x, lambda other: not other.is_bool)
    table = dict(BINARY)
    if kind.is_int:
        table |= INT_BINARY
    elif x.kind.is_float and y.kind.is_float and x.kind.dtype == y.kind.dtype:
        table |= FLOAT_BINARY
    text, function = entry(p, table)
    p.emit(text.format("x", "y"), kind, text.format(x, y), lambda at, a, b: function(a, b), x, y)


def true_division(p: Program) -> None:
    x = p.pick(lambda kind: kind.is_int)
    number = p.one((2, 3, -4))
    p.emit("int / k", x.kind.of("float32"), f"{x} / {number}", lambda at, a: a / number, x)


def compare(p: Program) -> None:
    x = p.pick(lambda kind: not kind.is_bool and kind.rank > 0)
    y, kind = partner(p, x, lambda other: other.dtype == x.kind.dtype)
    table = COMPARE if x.kind.is_int else dict(list(COMPARE.items())[:2])
    text, function = p.one(list(table.items()))
    p.emit(text.format("x", "y"), kind.of("bool"), text.format(x, y), lambda at, a, b: function(a, b), x, y)


def threshold(p: Program) -> None:
    x = p.pick(lambda kind: not kind.is_bool)
    number = p.one((0.125, -0.375)) if x.kind.is_float else p.one((0, 2, -1))
    p.emit("x > k", x.kind.of("bool"), f"{x} > {number}", lambda at, a: a > number, x)


def boolean(p: Program) -> None:
    x = p.pick(lambda kind: kind.is_bool and kind.rank > 0)
    if p.rng.random() < 0.4:
        p.emit("~bool", x.kind, f"~{x}", lambda at, a: ~a, x)
        return
    y, kind = partner(p, x, lambda other: other.is_bool)
    text, function = p.one(list(BOOL_BINARY.items()))
    p.emit(f"bool {text}", kind, text.format(x, y), lambda at, a, b: function(a, b), x, y)


def choose(p: Program) -> None:
    """`torch.where`, with another tensor or a scalar on the other side, and `masked_fill`."""
    mask = p.pick(lambda kind: kind.is_bool and kind.rank > 0)
    x, kind = partner(p, mask, lambda other: not other.is_bool)
    how = p.one(("scalar", "fill", "tensor"))
    if how == "tensor":
        y, both = partner(p, Value("", kind), lambda other: other.dtype == kind.dtype)
        if both != kind:
            raise SkipError
        p.emit("where", kind, f"torch.where({mask}, {x}, {y})", lambda at, m, a, b: np.where(m, a, b), mask, x, y)
        return
    number = p.one((-1, 0, 2))
    if how == "fill" and x.kind.shape == kind.shape:
        text = f"{x}.masked_fill({mask}, {number})"
        p.emit("masked_fill", kind, text, lambda at, m, a: np.where(m, number, a), mask, x)
        return
    text = f"torch.where({mask}, {x}, {float(number) if x.kind.is_float else number})"
    p.emit("where scalar", kind, text, lambda at, m, a: np.where(m, a, number), mask, x)


def cast(p: Program) -> None:
    x = p.pick()
    to = p.one([dtype for dtype in (*FLOATS, *INTS, "float32") if dtype != x.kind.dtype])
    if x.kind.is_float and to in INTS:
        text = f"{x}.clamp(-50.0, 50.0).to(torch.{to})"
        p.emit(f"float to {to}", x.kind.of(to), text, lambda at, a: np.trunc(np.clip(a, -50, 50)), x)
        return
    source = "bool" if x.kind.is_bool else x.kind.dtype
    p.emit(f"{source} to {to}", x.kind.of(to), f"{x}.to(torch.{to})", lambda at, a: a.astype(np.float64), x)


OPERATORS = {
    unary: 5.0,
    with_scalar: 1.5,
    binary: 5.0,
    true_division: 0.4,
    compare: 0.8,
    threshold: 0.8,
    boolean: 0.8,
    choose: 1.5,
    cast: 1.5,
}
