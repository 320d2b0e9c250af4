"""Operators that move elements: transposing, slicing, joining, gathering, scattering, and new tensors by size."""

from __future__ import annotations

from typing import Any

import numpy as np
from kinds import NN, B, Kind, Size, fixed
from program import Program, SkipError


def turn(p: Program) -> None:
    x = p.pick(lambda kind: kind.rank > 1)
    axes = list(range(x.kind.rank))
    p.rng.shuffle(axes)
    kind = x.kind.reshaped(*(x.kind.shape[axis] for axis in axes))
    if x.kind.rank == 2:
        p.emit(
            "transpose",
            kind,
            f"{x}.transpose({axes[0]}, {axes[1]})" if axes != [0, 1] else f"{x}.clone()",
            lambda at, a: a.transpose(axes),
            x,
        )
    else:
        p.emit("permute", kind, f"{x}.permute({', '.join(map(str, axes))})", lambda at, a: a.transpose(axes), x)


def flatten(p: Program) -> None:
    """Two neighbors become one, by -1 or by the product of their sizes."""
    x = p.pick(lambda kind: kind.rank > 1 and min(size.least for size in kind.shape) > 0)
    axis = p.rng.randrange(x.kind.rank - 1)
    joint = x.kind.shape[axis].times(x.kind.shape[axis + 1])
    if joint is None:
        raise SkipError
    shape = (*x.kind.shape[:axis], joint, *x.kind.shape[axis + 2 :])
    how = p.one(("flatten", "reshape", "-1"))
    if how == "flatten":
        said = f"{x}.flatten({axis}, {axis + 1})"
    else:
        sizes = [p.size(size) for size in shape]
        if how == "-1":
            sizes[axis] = "-1"
        said = f"{x}.reshape({', '.join(sizes)})"
    p.emit(
        f"join axes ({how})",
        x.kind.reshaped(*shape),
        said,
        lambda at, a: a.reshape([size.at(*at) for size in shape]),
        x,
    )


def split_axis(p: Program) -> None:
    """batch·n or an even size taken apart again."""
    x = p.pick(lambda kind: any(size == Size(bn=1) or size.fixed in (4, 6) for size in kind.shape))
    axis = p.axis(x, lambda size: size == Size(bn=1) or size.fixed in (4, 6))
    parts = (B, NN) if x.kind.shape[axis].bn else (fixed(2), fixed(x.kind.shape[axis].c // 2))
    kind = x.kind.with_axis(axis, *parts)
    sizes = ", ".join(p.size(size) for size in kind.shape)
    p.emit(
        "split axis", kind, f"{x}.reshape({sizes})", lambda at, a: a.reshape([size.at(*at) for size in kind.shape]), x
    )


def unsqueeze(p: Program) -> None:
    x = p.pick(lambda kind: kind.rank < 4)
    axis = p.rng.randint(0, x.kind.rank)
    shape = (*x.kind.shape[:axis], fixed(1), *x.kind.shape[axis:])
    p.emit("unsqueeze", x.kind.reshaped(*shape), f"{x}.unsqueeze({axis})", lambda at, a: np.expand_dims(a, axis), x)


def squeeze(p: Program) -> None:
    x = p.pick(lambda kind: fixed(1) in kind.shape)
    axis = p.axis(x, lambda size: size == fixed(1))
    p.emit("squeeze", x.kind.with_axis(axis), f"{x}.squeeze({p.spell(axis, x)})", lambda at, a: a.squeeze(axis), x)


def cut(p: Program) -> None:
    """A slice along an axis; what is left may be empty at the lowest sizes."""
    x = p.pick(lambda kind: kind.rank > 0)
    axis = p.axis(x, lambda size: size.least > 0)
    size = x.kind.shape[axis]
    empty = p.rng.random() < 0.2 or size.least > 1
    options: list[tuple[str, slice | int, Size | None]] = [
        ("-1", -1, None),
        ("0", 0, None),
        (":1", slice(0, 1), fixed(1)),
        ("-1:", slice(-1, None), fixed(1)),
    ]
    if empty:
        less = size.plus(fixed(-1))
        options += [("1:", slice(1, None), less), (":-1", slice(None, -1), less)]
    if size.fixed in (4, 6):
        options += [("::2", slice(None, None, 2), fixed(size.c // 2)), ("1:3", slice(1, 3), fixed(2))]
    text, part, left = p.one(options)
    place = ", ".join([":"] * axis + [text])
    kind = x.kind.with_axis(axis, *([] if left is None else [left]))
    p.emit(f"slice {text}", kind, f"{x}[{place}]", lambda at, a: a[(slice(None),) * axis + (part,)], x)


def mirror(p: Program) -> None:
    x = p.pick(lambda kind: kind.rank > 0)
    axis = p.axis(x)
    if p.rng.random() < 0.5:
        p.emit("flip", x.kind, f"torch.flip({x}, [{axis}])", lambda at, a: np.flip(a, axis), x)
    else:
        shift = p.one((1, -1, 2))
        p.emit("roll", x.kind, f"torch.roll({x}, {shift}, {axis})", lambda at, a: np.roll(a, shift, axis), x)


def join(p: Program) -> None:
    x = p.pick(lambda kind: kind.rank > 0)
    y = p.pick(lambda kind: kind.dtype == x.kind.dtype and kind.rank == x.kind.rank)
    if x.kind.shape == y.kind.shape and p.rng.random() < 0.4 and x.kind.rank < 4:
        axis = p.rng.randint(0, x.kind.rank)
        shape = (*x.kind.shape[:axis], fixed(2), *x.kind.shape[axis:])
        p.emit(
            "stack",
            x.kind.reshaped(*shape),
            f"torch.stack([{x}, {y}], {axis})",
            lambda at, a, b: np.stack([a, b], axis),
            x,
            y,
        )
        return
    apart = [axis for axis in range(x.kind.rank) if x.kind.shape[axis] != y.kind.shape[axis]]
    if len(apart) > 1:
        raise SkipError
    axis = apart[0] if apart else p.axis(x)
    kind = x.kind.with_axis(axis, x.kind.shape[axis].plus(y.kind.shape[axis]))
    p.emit(
        "cat",
        kind,
        f"torch.cat([{x}, {y}], dim={p.spell(axis, x)})",
        lambda at, a, b: np.concatenate([a, b], axis),
        x,
        y,
    )


def repeat(p: Program) -> None:
    x = p.pick(lambda kind: 0 < kind.rank < 4)
    axis = p.axis(x)
    size = x.kind.shape[axis].times(fixed(2))
    assert size is not None
    kind = x.kind.with_axis(axis, size)
    if p.rng.random() < 0.5:
        p.emit(
            "repeat_interleave", kind, f"{x}.repeat_interleave(2, dim={axis})", lambda at, a: np.repeat(a, 2, axis), x
        )
        return
    counts = [2 if one == axis else 1 for one in range(x.kind.rank)]
    p.emit("repeat", kind, f"{x}.repeat({', '.join(map(str, counts))})", lambda at, a: np.tile(a, counts), x)


def expand(p: Program) -> None:
    x = p.pick(lambda kind: fixed(1) in kind.shape)
    axis = p.axis(x, lambda size: size == fixed(1))
    to = p.one((B, NN, fixed(3)))
    kind = x.kind.with_axis(axis, to)
    sizes = ", ".join(p.size(to) if one == axis else "-1" for one in range(x.kind.rank))
    p.emit(
        "expand",
        kind,
        f"{x}.expand({sizes})",
        lambda at, a: np.broadcast_to(a, [size.at(*at) for size in kind.shape]),
        x,
    )


def pad(p: Program) -> None:
    x = p.pick(lambda kind: not kind.is_bool and kind.rank > 0)
    before, after = p.one(((0, 1), (1, 0), (2, 1)))
    value = p.one((0, 1))
    kind = x.kind.with_axis(x.kind.rank - 1, x.kind.shape[-1].plus(fixed(before + after)))
    width = [(0, 0)] * (x.kind.rank - 1) + [(before, after)]
    p.emit(
        "pad",
        kind,
        f"F.pad({x}, ({before}, {after}), value={value})",
        lambda at, a: np.pad(a, width, constant_values=value),
        x,
    )


def triangle(p: Program) -> None:
    x = p.pick(lambda kind: not kind.is_bool and kind.rank > 1)
    name, function = p.one((("tril", np.tril), ("triu", np.triu)))
    k = p.one((0, 1, -1))
    p.emit(name, x.kind, f"torch.{name}({x}, {k})", lambda at, a: function(a, k), x)


def gather(p: Program) -> None:
    """By places that an argsort or a clamp made legal, along an axis."""
    x = p.pick(lambda kind: kind.rank > 0 and not kind.is_bool and min(size.least for size in kind.shape) > 0)
    index = p.pick(lambda kind: kind.dtype == "int64" and kind.shape == x.kind.shape)
    axis = p.axis(x)
    size = x.kind.shape[axis]
    said = f"torch.gather({x}, {axis}, {index} % {x}.shape[{axis}])"
    p.emit("gather", x.kind, said, lambda at, a, i: np.take_along_axis(a, i % size.at(*at), axis), x, index)


def select(p: Program) -> None:
    """`index_select` and advanced indexing by a vector of whole numbers."""
    x = p.pick(lambda kind: kind.rank > 0 and min(size.least for size in kind.shape) > 0)
    index = p.pick(lambda kind: kind.dtype == "int64" and kind.rank == 1)
    axis = p.axis(x)
    size = x.kind.shape[axis]
    kind = x.kind.with_axis(axis, index.kind.shape[0])
    legal = f"{index} % {x}.shape[{axis}]"
    if p.rng.random() < 0.5:
        said = f"torch.index_select({x}, {axis}, {legal})"
    else:
        said = f"{x}[{', '.join([':'] * axis + [legal])}]"
    p.emit("index_select", kind, said, lambda at, a, i: np.take(a, i % size.at(*at), axis), x, index)


def scatter(p: Program) -> None:
    x = p.pick(lambda kind: kind.is_float and kind.rank > 0 and min(size.least for size in kind.shape) > 0)
    index = p.pick(lambda kind: kind.dtype == "int64" and kind.shape == x.kind.shape)
    axis = p.axis(x)
    size = x.kind.shape[axis]

    def add(at: Any, a: Any, i: Any) -> Any:
        out = np.zeros_like(a)
        places = list(np.indices(a.shape))
        places[axis] = i % size.at(*at)
        np.add.at(out, tuple(places), a)
        return out

    said = f"torch.zeros_like({x}).scatter_add({axis}, {index} % {x}.shape[{axis}], {x})"
    p.emit("scatter_add", x.kind, said, add, x, index)


def look_up(p: Program) -> None:
    """An embedding, or a table indexed by whole numbers."""
    index = p.pick(lambda kind: kind.dtype == "int64" and 0 < kind.rank < 3)
    kind = Kind("float32", (*index.kind.shape, fixed(3)))
    if p.rng.random() < 0.5:
        name, w = p.layer("nn.Embedding(5, 3)", {"weight": (5, 3)})
        p.emit("Embedding", kind, f"{name}({index} % 5)", lambda at, i: w["weight"][i % 5], index)
    else:
        table, values = p.weight(5, 3)
        p.emit("table[index]", kind, f"{table}[{index} % 5]", lambda at, i: values[i % 5], index)


def one_hot(p: Program) -> None:
    index = p.pick(lambda kind: kind.dtype == "int64" and 0 < kind.rank < 3)
    kind = index.kind.reshaped(*index.kind.shape, fixed(4))
    p.emit("one_hot", kind, f"F.one_hot({index} % 4, 4)", lambda at, i: np.eye(4, dtype=np.int64)[i % 4], index)


def new(p: Program) -> None:
    """A tensor made from sizes alone."""
    size = p.one((NN, B, NN))
    said = p.size(size)
    how = p.one(("arange", "arange float", "ones", "eye", "full"))
    if how == "arange":
        p.emit(how, Kind("int64", (size,)), f"torch.arange({said})", lambda at: np.arange(size.at(*at)))
    elif how == "arange float":
        p.emit(
            how,
            Kind("float32", (size,)),
            f"torch.arange({said}, dtype=torch.float32) / {said}",
            lambda at: np.arange(size.at(*at)) / size.at(*at),
        )
    elif how == "eye":
        p.emit(how, Kind("float32", (size, size)), f"torch.eye({said})", lambda at: np.eye(size.at(*at)))
    elif how == "ones":
        p.emit(how, Kind("float32", (size, fixed(3))), f"torch.ones({said}, 3)", lambda at: np.ones((size.at(*at), 3)))
    else:
        p.emit(
            how,
            Kind("int64", (size,)),
            f"torch.full(({said},), {said})",
            lambda at: np.full(size.at(*at), size.at(*at)),
        )


OPERATORS = {
    turn: 1.2,
    flatten: 0.8,
    split_axis: 0.6,
    unsqueeze: 0.6,
    squeeze: 0.4,
    cut: 1.4,
    mirror: 0.5,
    join: 1.0,
    repeat: 0.4,
    expand: 0.5,
    pad: 0.4,
    triangle: 0.4,
    gather: 0.6,
    select: 0.6,
    scatter: 0.4,
    look_up: 0.6,
    one_hot: 0.3,
    new: 0.6,
}
