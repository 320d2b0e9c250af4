"""Operators with weights or contractions: linear, matmul, einsum, convolution, pooling, recurrence, attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from kinds import Kind, fixed
from program import Array, Program, SkipError


def _plain(kind: Kind) -> bool:
    return kind.dtype == "float32" and min((size.least for size in kind.shape), default=0) > 0


def linear(p: Program) -> None:
    x = p.pick(lambda kind: kind.dtype == "float32" and kind.rank > 1 and (kind.shape[-1].fixed or 0) > 0)
    size, out = x.kind.shape[-1].c, p.one((2, 3, 4))
    kind = x.kind.with_axis(x.kind.rank - 1, fixed(out))
    if p.rng.random() < 0.6:
        name, w = p.layer(f"nn.Linear({size}, {out})", {"weight": (out, size), "bias": (out,)})
        p.emit("Linear", kind, f"{name}({x})", lambda at, a: a @ w["weight"].T + w["bias"], x)
    else:
        name, values = p.weight(size, out)
        p.emit("x @ w", kind, f"{x} @ {name}", lambda at, a: a @ values, x)


def matmul(p: Program) -> None:
    """Two activations contracted, both of which may vary in size."""
    x = p.pick(lambda kind: kind.is_float and kind.rank in (2, 3) and min(s.least for s in kind.shape) > 0)
    y = p.pick(lambda kind: kind.dtype == x.kind.dtype and kind.rank == x.kind.rank)
    if x.kind.shape[:-2] != y.kind.shape[:-2]:
        raise SkipError
    if x.kind.shape[-1] == y.kind.shape[-1]:
        kind = x.kind.with_axis(x.kind.rank - 1, y.kind.shape[-2])
        letters = "bnd,bmd->bnm" if x.kind.rank == 3 else "nd,md->nm"
        said = p.one((f"{x} @ {y}.transpose(-1, -2)", f'torch.einsum("{letters}", {x}, {y})'))
        p.emit("x @ y.T", kind, said, lambda at, a, b: a @ np.swapaxes(b, -1, -2), x, y)
    elif x.kind.shape[-1] == y.kind.shape[-2]:
        kind = x.kind.with_axis(x.kind.rank - 1, y.kind.shape[-1])
        p.emit("x @ y", kind, f"torch.matmul({x}, {y})", lambda at, a, b: a @ b, x, y)
    else:
        raise SkipError


def _windows(a: Array, size: int, stride: int = 1) -> Array:
    return np.lib.stride_tricks.sliding_window_view(a, size, axis=-1)[..., ::stride, :]


def convolution(p: Program) -> None:
    x = p.pick(lambda kind: _plain(kind) and kind.rank == 3 and kind.shape[1].fixed is not None)
    size, out, width = x.kind.shape[1].c, p.one((2, 4)), p.one((1, 3))
    text = f"nn.Conv1d({size}, {out}, {width}, padding={width // 2})"
    name, w = p.layer(text, {"weight": (out, size, width), "bias": (out,)})

    def conv(at: Any, a: Array) -> Array:
        padded = np.pad(a, ((0, 0), (0, 0), (width // 2, width // 2)))
        return np.einsum("bcnk,ock->bon", _windows(padded, width), w["weight"]) + w["bias"][:, None]

    p.emit("Conv1d", x.kind.with_axis(1, fixed(out)), f"{name}({x})", conv, x)


def pooling(p: Program) -> None:
    x = p.pick(lambda kind: _plain(kind) and kind.rank == 3)
    how = p.one(("max", "avg", "adaptive"))
    if how == "adaptive":
        p.emit(
            "adaptive_avg_pool1d",
            x.kind.with_axis(2, fixed(1)),
            f"F.adaptive_avg_pool1d({x}, 1)",
            lambda at, a: a.mean(-1, keepdims=True),
            x,
        )
        return

    def pool(at: Any, a: Array) -> Array:
        padded = np.pad(a, ((0, 0), (0, 0), (1, 1)), constant_values=-np.inf if how == "max" else 0)
        return _windows(padded, 3).max(-1) if how == "max" else _windows(padded, 3).mean(-1)

    p.emit(f"{how}_pool1d", x.kind, f"F.{how}_pool1d({x}, 3, stride=1, padding=1)", pool, x)


def batch_norm(p: Program) -> None:
    x = p.pick(lambda kind: _plain(kind) and kind.rank in (2, 3) and kind.shape[1].fixed is not None)
    size = x.kind.shape[1].c
    shape = (size,)
    name, w = p.layer(
        f"nn.BatchNorm1d({size}, eps=0.125)",
        {"weight": shape, "bias": shape, "running_mean": shape, "running_var": shape},
    )
    w = {key: value if x.kind.rank == 2 else value[:, None] for key, value in w.items()}
    p.emit(
        "BatchNorm1d",
        x.kind,
        f"{name}({x})",
        lambda at, a: (a - w["running_mean"]) / np.sqrt(w["running_var"] + 0.125) * w["weight"] + w["bias"],
        x,
    )


def recurrence(p: Program) -> None:
    """nn.GRU over the second axis, batch first."""
    x = p.pick(lambda kind: _plain(kind) and kind.rank == 3 and kind.shape[-1].fixed is not None)
    size, hidden = x.kind.shape[-1].c, 3
    name, w = p.layer(
        f"nn.GRU({size}, {hidden}, batch_first=True)",
        {"weight_ih_l0": (9, size), "weight_hh_l0": (9, hidden), "bias_ih_l0": (9,), "bias_hh_l0": (9,)},
    )

    def gru(at: Any, a: Array) -> Array:
        h, found = np.zeros((a.shape[0], hidden)), []
        for i in range(a.shape[1]):
            gi = a[:, i] @ w["weight_ih_l0"].T + w["bias_ih_l0"]
            gh = h @ w["weight_hh_l0"].T + w["bias_hh_l0"]
            r, z = (1 / (1 + np.exp(-(gi[:, k : k + 3] + gh[:, k : k + 3]))) for k in (0, 3))
            h = (1 - z) * np.tanh(gi[:, 6:] + r * gh[:, 6:]) + z * h
            found.append(h)
        return np.stack(found, 1)

    p.emit("GRU", x.kind.with_axis(2, fixed(hidden)), f"{name}({x})[0]", gru, x)


def attention(p: Program) -> None:
    """Self-attention over the second axis, causal or not, by one call or by hand."""
    x = p.pick(lambda kind: _plain(kind) and kind.rank == 3 and kind.shape[-1].fixed is not None)
    size = x.kind.shape[-1].c
    causal = p.rng.random() < 0.5
    name, values = p.weight(size, size)

    def attend(at: Any, a: Array) -> Array:
        q = a @ values
        scores = q @ np.swapaxes(a, -1, -2) / np.sqrt(size)
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        soft = np.exp(scores - scores.max(-1, keepdims=True))
        return soft / soft.sum(-1, keepdims=True) @ a

    if p.rng.random() < 0.5:
        said: str | list[str] = f"F.scaled_dot_product_attention({x} @ {name}, {x}, {x}, is_causal={causal})"
    else:
        said = [f"scores = {x} @ {name} @ {x}.transpose(1, 2) / {size} ** 0.5"]
        if causal:
            said += [
                f"keep = torch.ones({x}.shape[1], {x}.shape[1], dtype=torch.bool).tril()",
                'scores = scores.masked_fill(~keep, float("-inf"))',
            ]
        said += [f"{{out}} = torch.softmax(scores, -1) @ {x}"]
    p.emit("attention", x.kind, said, attend, x)


OPERATORS = {
    linear: 1.6,
    matmul: 1.2,
    convolution: 0.7,
    pooling: 0.5,
    batch_norm: 0.4,
    recurrence: 0.25,
    attention: 0.7,
}
