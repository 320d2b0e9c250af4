"""Operators along an axis: reductions, scans, orders, norms, softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kinds import fixed
from program import Program, SkipError

FLOAT_REDUCE: dict[str, Callable[..., Any]] = {
    "{}.sum({}{})": np.sum,
    "{}.mean({}{})": np.mean,
    "{}.amax({}{})": np.max,
    "{}.amin({}{})": np.min,
    "{}.prod({}{})": np.prod,
    "{}.var({}, unbiased=False{})": np.var,
    "torch.linalg.vector_norm({}, dim={}{})": lambda x, axis, keepdims: np.sqrt((x * x).sum(axis, keepdims=keepdims)),
    "torch.logsumexp({}, {}{})": lambda x, axis, keepdims: (
        np.log(np.exp(x - x.max()).sum(axis, keepdims=keepdims)) + x.max()
    ),
    "{}.norm(1, {}{})": lambda x, axis, keepdims: np.abs(x).sum(axis, keepdims=keepdims),
}
MAY_BE_EMPTY = ("{}.sum({}{})", "{}.prod({}{})")


def reduce(p: Program) -> None:
    x = p.pick(lambda kind: kind.rank > 0)
    axis = p.axis(x)
    empty = x.kind.shape[axis].least < 1
    keep = p.rng.random() < 0.5
    if min((size.least for size in x.kind.shape), default=1) < 1 and not empty:
        raise SkipError
    if x.kind.is_float:
        text, function = p.one([(t, f) for t, f in FLOAT_REDUCE.items() if not empty or t in MAY_BE_EMPTY])
        dtype = x.kind.dtype
    elif x.kind.is_bool:
        text, function, dtype = p.one(
            [("{}.any({}{})", np.any, "bool"), ("{}.all({}{})", np.all, "bool"), ("{}.sum({}{})", np.sum, "int64")]
        )
    else:
        names = ("{}.sum({}{})", "{}.prod({}{})") if empty else ("{}.sum({}{})", "{}.amax({}{})", "{}.amin({}{})")
        text = p.one(names)
        function = FLOAT_REDUCE[text]
        dtype = x.kind.dtype if "am" in text else "int64"
    kind = x.kind.with_axis(axis, *([fixed(1)] if keep else [])).of(dtype)
    said = text.format(x, p.spell(axis, x), ", keepdim=True" if keep else "")
    p.emit(text.format("x", "dim", ""), kind, said, lambda at, a: function(a, axis=axis, keepdims=keep), x)


def reduce_all(p: Program) -> None:
    """Over two axes at once, so that one size remains."""
    x = p.pick(lambda kind: kind.is_float and kind.rank == 3 and min(size.least for size in kind.shape) > 0)
    first, second = p.one(((0, 1), (1, 2), (0, 2)))
    kind = x.kind.reshaped(*(size for axis, size in enumerate(x.kind.shape) if axis not in (first, second)))
    name, function = p.one((("sum", np.sum), ("mean", np.mean), ("amax", np.max)))
    p.emit(
        f"{name} over two",
        kind,
        f"{x}.{name}(dim=({first}, {second}))",
        lambda at, a: function(a, axis=(first, second)),
        x,
    )


def scan(p: Program) -> None:
    x = p.pick(lambda kind: kind.rank > 0 and not kind.is_bool)
    axis = p.axis(x)
    dtype = x.kind.dtype if x.kind.is_float else "int64"
    p.emit("cumsum", x.kind.of(dtype), f"{x}.cumsum({p.spell(axis, x)})", lambda at, a: np.cumsum(a, axis), x)


def softmax(p: Program) -> None:
    x = p.pick(lambda kind: kind.is_float and kind.rank > 0)
    axis = p.axis(x)

    def soft(a: Any) -> Any:
        top = np.exp(a - a.max(axis, keepdims=True)) if a.size else a
        return top / top.sum(axis, keepdims=True)

    said = p.spell(axis, x)
    if p.rng.random() < 0.7:
        p.emit("softmax", x.kind, f"torch.softmax({x}, {said})", lambda at, a: soft(a), x)
    else:
        p.emit("log_softmax", x.kind, f"F.log_softmax({x}, dim={said})", lambda at, a: np.log(soft(a)), x)


def index_of_extreme(p: Program) -> None:
    x = p.pick(lambda kind: not kind.is_bool and kind.rank > 0 and min(size.least for size in kind.shape) > 0)
    axis = p.axis(x)
    keep = p.rng.random() < 0.5
    name, function = p.one((("argmax", np.argmax), ("argmin", np.argmin)))
    kind = x.kind.with_axis(axis, *([fixed(1)] if keep else [])).of("int64")
    said = f"{x}.{name}({p.spell(axis, x)}{', keepdim=True' if keep else ''})"
    p.emit(name, kind, said, lambda at, a: function(a, axis=axis, keepdims=keep), x)


def order(p: Program) -> None:
    """Sorted values; places only from a stable sort, where ties have one answer."""
    x = p.pick(lambda kind: not kind.is_bool and kind.rank > 0 and min(size.least for size in kind.shape) > 0)
    axis = p.axis(x)
    down = p.rng.random() < 0.5
    if p.rng.random() < 0.8:  # exporters refuse a stable sort
        count = p.rng.randint(1, x.kind.shape[axis].least)
        kind = x.kind.with_axis(axis, fixed(count))
        said = f"torch.topk({x}, {count}, dim={p.spell(axis, x)}, largest={down}).values"

        def top(at: Any, a: Any) -> Any:
            ordered = np.sort(a, axis)
            return np.take(np.flip(ordered, axis) if down else ordered, range(count), axis)

        p.emit("topk", kind, said, top, x)
        return

    def places(a: Any) -> Any:
        return np.argsort(-a.astype(np.float64) if down else a, axis, kind="stable")

    said = f"torch.sort({x}, dim={p.spell(axis, x)}, descending={down}, stable=True)"
    if p.rng.random() < 0.5:
        p.emit("sort", x.kind, f"{said}.values", lambda at, a: np.take_along_axis(a, places(a), axis), x)
    else:
        p.emit("sort indices", x.kind.of("int64"), f"{said}.indices", lambda at, a: places(a), x)


def normalize(p: Program) -> None:
    """LayerNorm, RMSNorm and an L2 norm over a last axis of fixed size."""
    x = p.pick(lambda kind: kind.dtype == "float32" and kind.rank > 1 and (kind.shape[-1].fixed or 0) > 1)
    size = x.kind.shape[-1].c
    how = p.one(("layer", "rms", "l2"))
    if how == "l2":
        p.emit(
            "F.normalize",
            x.kind,
            f"F.normalize({x}, dim=-1, eps=0.125)",
            lambda at, a: a / np.maximum(np.sqrt((a * a).sum(-1, keepdims=True)), 0.125),
            x,
        )
    elif how == "rms":
        name, w = p.layer(f"nn.RMSNorm({size}, eps=0.125)", {"weight": (size,)})
        p.emit(
            "RMSNorm",
            x.kind,
            f"{name}({x})",
            lambda at, a: a / np.sqrt((a * a).mean(-1, keepdims=True) + 0.125) * w["weight"],
            x,
        )
    else:
        name, w = p.layer(f"nn.LayerNorm({size}, eps=0.125)", {"weight": (size,), "bias": (size,)})

        def layer(at: Any, a: Any) -> Any:
            centered = a - a.mean(-1, keepdims=True)
            return centered / np.sqrt(a.var(-1, keepdims=True) + 0.125) * w["weight"] + w["bias"]

        p.emit("LayerNorm", x.kind, f"{name}({x})", layer, x)


OPERATORS = {
    reduce: 3.0,
    reduce_all: 0.5,
    scan: 0.7,
    softmax: 0.8,
    index_of_extreme: 0.6,
    order: 0.8,
    normalize: 0.7,
}
