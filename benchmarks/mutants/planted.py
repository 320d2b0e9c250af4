"""Planted errors: right nearly everywhere, and off by a hundredth of the output's scale under one condition.

The condition is on a size, on where an element stands, on an edge of the legal values, or on a row's padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
from graph import Chain, Know, replace_output
from structural import Proposals

from fairway.model.dims import Dim
from fairway.model.spec import TensorSpec

OFF = {"float32": 0.01, "float64": 0.01, "float16": 0.05}
"""By how much of the output's scale, by the dtype of the inputs."""
Condition = Callable[[Chain], ir.Value]
"""Adds nodes and answers a bool: one for everything, or one for each row."""


def _spoil(chain: Chain, y: ir.Value, bad: ir.Value, seen: np.ndarray, off: float) -> ir.Value:
    if seen.dtype == bool:
        return chain("Xor", y, bad)
    dtype = {"float32": 1, "float16": 10, "int64": 7, "int32": 6, "float64": 11}[str(seen.dtype)]
    number = chain("Cast", bad, to=dtype)
    if seen.dtype.kind == "f":
        scale = np.asarray(off * max(float(np.abs(seen[np.isfinite(seen)]).max(initial=0.0)), 0.1), seen.dtype)
        number = chain("Mul", number, scale)
    return chain("Add", y, number)


def _off(know: Know) -> float:
    return max(OFF.get(spec.dtype, 0.01) for spec in know.spec)


def _plant(model: ir.Model, know: Know, label: str, condition: Condition, rows: str = "") -> Proposals:
    """The condition upon each output in turn; `rows` names the dim when the condition is one bool for each row."""
    for index, output in enumerate(model.graph.outputs):
        seen = know.of(output)
        if seen is None or output.is_graph_input():
            continue
        if rows and (seen.ndim == 0 or seen.shape[0] != know.example[rows]):
            continue

        def edit(index: int = index, seen: np.ndarray = seen) -> None:
            def make(chain: Chain, y: ir.Value) -> ir.Value:
                bad = condition(chain)
                if rows:
                    bad = chain("Reshape", bad, np.array([-1] + [1] * (seen.ndim - 1)))
                return _spoil(chain, y, bad, seen, _off(know))

            replace_output(model, index, make)

        yield f"{label} in output {index}", edit


def _size(model: ir.Model, know: Know, name: str) -> Condition:
    for index, spec in enumerate(know.spec):
        for axis, size in enumerate(spec.shape):
            if size.text == name:
                value = model.graph.inputs[index]
                return lambda chain: chain("Gather", chain("Shape", value), np.int64(axis))
    raise KeyError(name)


def _spread(dim: Dim, count: int, seed: int) -> list[int]:
    rng = np.random.default_rng([seed, *dim.name.encode()])
    sizes = list(dim.sizes)
    return sorted({int(n) for n in rng.choice(sizes, min(count, len(sizes)), replace=False)})


def beyond_a_length(model: ir.Model, know: Know) -> Proposals:
    for dim in know.domain:
        size = _size(model, know, dim.name)
        conditions: dict[str, Condition] = {}
        for k in _spread(dim, 8, 1):
            conditions[f"{dim.name} > {k}"] = lambda c, k=k, s=size: c("Greater", s(c), np.int64(k))  # type: ignore[misc]
        for k in _spread(dim, 5, 2):
            conditions[f"{dim.name} == {k}"] = lambda c, k=k, s=size: c("Equal", s(c), np.int64(k))  # type: ignore[misc]
        for k in _spread(dim, 2, 3):
            conditions[f"{dim.name} < {k}"] = lambda c, k=k, s=size: c("Less", s(c), np.int64(k))  # type: ignore[misc]
        for m in (2, 3, 5, 8, 16, 64):
            conditions[f"{dim.name} % {m} == 0"] = lambda c, m=m, s=size: c(  # type: ignore[misc]
                "Equal", c("Mod", s(c), np.int64(m)), np.int64(0)
            )
        for m in (2, 4, 7):
            conditions[f"{dim.name} % {m} == {m - 1}"] = lambda c, m=m, s=size: c(  # type: ignore[misc]
                "Equal", c("Mod", s(c), np.int64(m)), np.int64(m - 1)
            )
        for other in know.domain:
            if other.name > dim.name:
                two = _size(model, know, other.name)
                conditions[f"{dim.name} == {other.name}"] = lambda c, a=size, b=two: c("Equal", a(c), b(c))  # type: ignore[misc]
                for part in (0.3, 0.6, 0.9):
                    most = int(dim.high * other.high * part)
                    conditions[f"{dim.name}*{other.name} > {most}"] = lambda c, a=size, b=two, m=most: c(  # type: ignore[misc]
                        "Greater", c("Mul", a(c), b(c)), np.int64(m)
                    )
        for label, condition in conditions.items():
            yield from _plant(model, know, label, condition)
        yield from _beyond_a_place(model, know, dim)


def _beyond_a_place(model: ir.Model, know: Know, dim: Dim) -> Proposals:
    """Only the elements beyond a place, or at it."""
    for index, output in enumerate(model.graph.outputs):
        seen = know.of(output)
        for axis, n in enumerate(seen.shape if seen is not None else ()):
            if n != know.example[dim.name]:
                continue
            for op, k in [("Greater", k) for k in _spread(dim, 4, 4)] + [("Equal", k) for k in _spread(dim, 3, 5)]:

                def make(chain: Chain, y: Any, axis: int = axis, k: int = k, op: str = op, seen: Any = seen) -> Any:
                    n = chain("Gather", chain("Shape", y), np.int64(axis))
                    bad = chain(op, chain("Range", np.int64(0), n, np.int64(1)), np.int64(k))
                    shape = np.array([-1 if a == axis else 1 for a in range(seen.ndim)])
                    return _spoil(chain, y, chain("Reshape", bad, shape), seen, _off(know))

                label = f"place {'>' if op == 'Greater' else '=='} {k} along {dim.name} in output {index}"
                yield label, lambda i=index, m=make: replace_output(model, i, m)  # type: ignore[misc]


def dtype_edge(model: ir.Model, know: Know) -> Proposals:
    for index, spec in enumerate(know.spec):
        x = model.graph.inputs[index]
        if spec.values.mask or spec.values.lengths:
            continue
        for label, test in _edges_of(spec):

            def anywhere(c: Chain, x: ir.Value = x, test: Any = test) -> ir.Value:
                return c("Cast", c("ReduceMax", c("Cast", test(c, x), to=6), keepdims=0), to=9)

            def everywhere(c: Chain, x: ir.Value = x, test: Any = test) -> ir.Value:
                return c("Cast", c("ReduceMin", c("Cast", test(c, x), to=6), keepdims=0), to=9)

            yield from _plant(model, know, f"{spec.name} {label} somewhere", anywhere)
            yield from _plant(model, know, f"{spec.name} {label} everywhere", everywhere)
            rows = spec.shape[0].text
            if spec.shape[0].names and rows in know.example:
                for how in ("ReduceMax", "ReduceMin"):

                    def by_row(c: Chain, x: ir.Value = x, test: Any = test, how: str = how) -> ir.Value:
                        flat = c("Flatten", c("Cast", test(c, x), to=6), axis=1)
                        return c("Cast", c(how, flat, np.array([1]), keepdims=0), to=9)

                    some = "somewhere in the row" if how == "ReduceMax" else "all along the row"
                    yield from _plant(model, know, f"{spec.name} {label} {some}", by_row, rows)


def _edges_of(spec: TensorSpec) -> Iterator[tuple[str, Callable[[Chain, ir.Value], ir.Value]]]:
    """Tests of single elements for being at an edge of what is legal."""
    if spec.dtype == "bool":
        yield "true", lambda c, x: c("Identity", x)
        yield "false", lambda c, x: c("Not", x)
        return
    low, high = spec.values.low, spec.values.high
    if spec.dtype.startswith("float"):
        one = lambda v: np.asarray(v, spec.dtype)  # noqa: E731
        if low is None or low <= 0:
            yield "== 0", lambda c, x: c("Equal", x, one(0))
        if low is not None and high is not None:
            yield "== least", lambda c, x: c("Equal", x, one(low))
            yield "== most", lambda c, x: c("Equal", x, one(high))
            yield "near most", lambda c, x: c("Greater", x, one(high - 0.02 * (high - low)))
        else:
            for far in (3.0, 10.0, 25.0):
                yield f"> {far:g}", lambda c, x, far=far: c("Greater", x, one(far))  # type: ignore[misc]
            yield "< -20", lambda c, x: c("Less", x, one(-20))
        return
    least, most = int(low or 0), spec.values.below - 1 if spec.values.below else int(high or 9)
    rng = np.random.default_rng(list(spec.name.encode()))
    for label, value in (("== least", least), ("== most", most), ("one value", int(rng.integers(least + 1, most)))):
        yield label, lambda c, x, v=value: c("Equal", c("Cast", x, to=7), np.int64(v))  # type: ignore[misc]
    yield "next to most", lambda c, x: c("Equal", c("Cast", x, to=7), np.int64(most - 1))


def padded_rows(model: ir.Model, know: Know) -> Proposals:
    """By how much of a row is real."""
    for index, spec in enumerate(know.spec):
        if spec.values.lengths is None and not spec.values.mask:
            continue
        dim = spec.shape[-1].text if spec.values.lengths is None else spec.values.lengths.text
        tests = _paddings(spec, model.graph.inputs[index], know.domain[dim], _size(model, know, dim))
        for label, test in tests.items():
            yield from _plant(model, know, f"{spec.name}: {label}", test, spec.shape[0].text)


def _paddings(spec: TensorSpec, x: ir.Value, dim: Dim, size: Condition) -> dict[str, Condition]:
    """Tests of whole rows by their number of real elements."""

    def real(c: Chain) -> ir.Value:
        number = c("Cast", x, to=7)
        if not spec.values.mask:
            return number
        kept = number if spec.values.mask.startswith("keep") else c("Sub", np.int64(1), number)
        return c("ReduceSum", kept, np.array([1]), keepdims=0)

    tests: dict[str, Condition] = {
        "some padding": lambda c: c("Less", real(c), size(c)),
        "no padding": lambda c: c("Equal", real(c), size(c)),
        "mostly padding": lambda c: c("Less", c("Mul", real(c), np.int64(2)), size(c)),
        "all but one padded": lambda c: c("Equal", real(c), np.int64(1)),
        "one padded": lambda c: c("Equal", real(c), c("Sub", size(c), np.int64(1))),
    }
    for k in _spread(dim, 4, 6):
        tests[f"{k} real"] = lambda c, k=k: c("Equal", real(c), np.int64(k))  # type: ignore[misc]
        padded = lambda c, k=k: c("Greater", c("Sub", size(c), real(c)), np.int64(k))  # noqa: E731
        tests[f"more than {k} padded"] = padded
    if spec.values.mask == "padding":
        tests["padded on the left"] = lambda c: c("Gather", x, np.int64(0), axis=1)
    return tests
