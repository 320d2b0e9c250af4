"""Control flow as people write it: loops over a size, branches on a size, lists that grow, inner modules."""

from __future__ import annotations

from typing import Any

import numpy as np
from kinds import NN, B, fixed
from program import Array, Input, Program, SkipError, Value


def loop(p: Program) -> None:
    """A recurrence over a size, with the state carried in a variable or in a list."""
    x = p.pick(lambda kind: kind.dtype == "float32" and kind.rank in (2, 3) and kind.shape[1] == NN)
    keep = p.rng.random() < 0.5
    decay = p.one((0.5, 0.25, -0.5))
    body = f"h = torch.tanh(h * {decay} + {x}[:, i])"
    lines = [f"h = torch.zeros_like({x}[:, 0])"]
    if keep:
        lines += [
            "seen = []",
            f"for i in range({x}.shape[1]):",
            f"    {body}",
            "    seen.append(h)",
            "{out} = torch.stack(seen, dim=1)",
        ]
    else:
        lines += [f"for i in range({x}.shape[1]):", f"    {body}", "{out} = h"]

    def run(at: Any, a: Array) -> Array:
        h, seen = np.zeros_like(a[:, 0]), []
        for i in range(a.shape[1]):
            h = np.tanh(h * decay + a[:, i])
            seen.append(h)
        return np.stack(seen, 1) if keep else h

    p.emit("loop keeping" if keep else "loop", x.kind if keep else x.kind.with_axis(1), lines, run, x)


def count(p: Program) -> None:
    """A loop over a size that never looks at it: as many times as there are rows."""
    x = p.pick(lambda kind: kind.dtype == "float32" and (NN in kind.shape or B in kind.shape))
    axis = p.axis(x, lambda size: size in (NN, B))
    lines = [f"t = {x}", f"for _ in range({x}.shape[{axis}]):", "    t = t * 0.5 + 1.0", "{out} = t"]

    def run(at: Any, a: Array) -> Array:
        for _ in range(a.shape[axis]):
            a = a * 0.5 + 1.0
        return a

    p.emit("loop counting", x.kind, lines, run, x)


def branch(p: Program) -> None:
    """`if` on a size."""
    x = p.pick(lambda kind: kind.dtype == "float32" and NN in kind.shape)
    axis = x.kind.shape.index(NN)
    limit = p.one((1, 3, 4))
    lines = [f"if {x}.shape[{axis}] > {limit}:", f"    {{out}} = {x} * 2.0", "else:", f"    {{out}} = {x} - 1.0"]
    p.emit("if on a size", x.kind, lines, lambda at, a: a * 2 if a.shape[axis] > limit else a - 1, x)


def scaled_by_size(p: Program) -> None:
    """A size used as a number."""
    x = p.pick(lambda kind: kind.is_float and (NN in kind.shape or B in kind.shape))
    axis = p.axis(x, lambda size: size in (NN, B))
    said = p.one((f"{x} / {x}.shape[{axis}]", f"{x} * {x}.size({axis})", f"{x} / {x}.shape[{axis}] ** 0.5"))
    power = 0.5 if "**" in said else 1.0
    sign = 1 if " * " in said and "**" not in said else -1
    p.emit("size as a number", x.kind, said, lambda at, a: a * float(a.shape[axis]) ** (sign * power), x)


def inner(p: Program) -> None:
    """A separate module, called once or twice in a row with the same weights."""
    if p.depth > 1:
        raise SkipError
    x = p.pick(lambda kind: kind.dtype == "float32" and kind.rank > 1)
    from draw import steps

    block = Program(f"{p.name}Block{len(p.inner)}", p.rng, depth=p.depth + 1)
    given = Value("x0", x.kind)
    block.inputs, block.values = [Input(given)], [given]
    steps(block, p.rng.randint(2, 4))
    block.outputs = [block.pick(lambda kind: kind.is_float or kind.is_int)]
    if block.outputs == [given]:
        raise SkipError
    out = block.outputs[0]
    twice = out.kind == x.kind and p.rng.random() < 0.5
    p.inner.append(block)
    name = f"self.block{len(p.inner) - 1}"
    p.init.append(f"{name} = {block.name}()")
    said = f"{name}({name}({x}))" if twice else f"{name}({x})"

    def run(at: Any, a: Array) -> Array:
        from oracle import run_steps

        for _ in range(2 if twice else 1):
            a = run_steps(block, at, {"x0": a}, None)[out.name]
        return a

    p.emit("inner module", out.kind, said, run, x)


def in_place(p: Program) -> None:
    """A clone written into: a row set, or a slice added to."""
    x = p.pick(lambda kind: kind.is_float and kind.rank > 1 and kind.shape[1].least > 0)
    if p.rng.random() < 0.5:
        lines = [f"t = {x}.clone()", "t[:, 0] = 0.5", "{out} = t"]
    else:
        lines = [f"t = {x}.clone()", f"t[:, -1] += {x}[:, 0]", "{out} = t"]

    def run(at: Any, a: Array) -> Array:
        t = a.copy()
        if "+=" in lines[1]:
            t[:, -1] += a[:, 0]
        else:
            t[:, 0] = 0.5
        return t

    p.emit("in place", x.kind, lines, run, x)


def chunked(p: Program) -> None:
    x = p.pick(lambda kind: any(size.fixed in (2, 4, 6) for size in kind.shape) and not kind.is_bool)
    axis = p.axis(x, lambda size: size.fixed in (2, 4, 6))
    half = x.kind.shape[axis].c // 2
    lines = [f"left, right = {x}.chunk(2, dim={axis})", "{out} = left * right"]

    def run(at: Any, a: Array) -> Array:
        left, right = np.split(a, 2, axis)
        return left * right

    p.emit("chunk", x.kind.with_axis(axis, fixed(half)), lines, run, x)


OPERATORS = {
    loop: 0.5,
    count: 0.25,
    branch: 0.35,
    scaled_by_size: 0.6,
    inner: 0.9,
    in_place: 0.5,
    chunked: 0.5,
}
