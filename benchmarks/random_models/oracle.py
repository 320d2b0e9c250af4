"""The oracle: a program in plain numpy, floats as float64, whole numbers exact; no torch, no ONNX.

Its tolerances are plain. Beside the exact run there are others, one in which every step is rounded to its dtype, and
some in which it is moved by a few rounding errors. An element that moves by more than a quarter of the tolerance, or a
whole number that moves at all, is undecided. A program with undecided elements at ordinary values is ill-conditioned
and not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from kinds import EPS, POINTS
from program import Array, Input, Program, Value

PLAIN = {"float16": 3e-2, "float32": 1e-3, "float64": 1e-9}
"""Relative to an element and to a tenth of its tensor's largest; by the coarsest float that an output comes from."""
FLOOR = {"float16": 5e-2, "float32": 1e-3, "float64": 1e-4}
"""Added to both: the tails of a sigmoid or a gelu have no more digits than their values near 1, in any dtype."""

LIMIT = {"float16": 1e3, "float32": 1e6, "float64": 1e6, "int64": 2.0**40, "int32": 2.0**31}
"""Beyond these a dtype no longer tells x + 0.5 from x, or whole numbers wrap: such samples are not judged."""
FLAVORS = ("normal", "normal", "zeros", "large")
FAR = 120.0
"""Where a quarter of the `large` values are: beyond where exp leaves float32."""

MOVED = 3
ROUNDED = np.random.default_rng(0)
"""Stands for rounding to the dtype instead of noise."""
ABSOLUTE = tuple(np.random.default_rng([1, i]) for i in range(6))
"""Each stands for noise on the scale of the whole tensor: at large values, functions such as gelu cancel inside, and
the smallest of a softmax's values have no digits. Six, since the least of three values may stay the least by chance."""
ROUNDINGS = 4.0

Noise = np.random.Generator | None


class TooLargeError(Exception):
    """A value left the range in which dtypes of different width agree."""


def run_steps(program: Program, at: Any, values: dict[str, Array], noise: Noise) -> dict[str, Array]:
    """Every value by name."""
    with np.errstate(all="ignore"):
        for step in program.steps:
            kind = step.result.kind
            found = step.oracle(at, *(values[name] for name in step.inputs))
            values[step.result.name] = settle(np.asarray(found), kind.dtype, noise)
    return values


def settle(array: Array, dtype: str, noise: Noise) -> Array:
    """Floats as float64, moved by a few rounding errors where asked; whole numbers wrapped to their width."""
    if dtype == "bool":
        return array.astype(bool)
    if array.size and array.dtype != bool and np.nanmax(np.abs(array.astype(np.float64)), initial=0.0) > LIMIT[dtype]:
        raise TooLargeError
    if dtype not in EPS:
        return array.astype(dtype)
    array = array.astype(np.float64)
    if noise is ROUNDED:
        array = array.astype(dtype).astype(np.float64)
    elif (number := next((i for i, one in enumerate(ABSOLUTE) if one is noise), None)) is not None:
        spread = np.random.default_rng([array.size, number]).uniform(-1, 1, array.shape)
        array = array + ROUNDINGS * EPS[dtype] * np.abs(array).max(initial=0.0) * spread
    elif noise is not None:
        array = array * (1 + ROUNDINGS * EPS[dtype] * noise.uniform(-1, 1, array.shape))
    return array


def make(one: Input, at: tuple[int, int], rng: np.random.Generator, flavor: str) -> Array:
    """An input in its own dtype, drawn by numpy."""
    kind = one.value.kind
    shape = [size.at(*at) for size in kind.shape]
    if kind.is_bool:
        return rng.random(shape) < 0.5 if flavor != "zeros" else np.zeros(shape, bool)
    if kind.is_int:
        assert one.low is not None
        assert one.high is not None
        drawn = rng.integers(one.low, one.high + 1, shape) if flavor != "zeros" else np.zeros(shape)
        return drawn.astype(kind.dtype)
    drawn = np.asarray(rng.normal(size=shape) * {"normal": 1.0, "zeros": 0.0, "large": 30.0}[flavor])
    if flavor == "large":
        drawn = np.where(rng.random(shape) < 0.25, FAR * np.sign(drawn), drawn)
    return drawn.astype(kind.dtype)


def coarsest(program: Program) -> str:
    """The coarsest float dtype that a value has, inner modules included."""
    dtypes = {step.result.kind.dtype for step in program.steps} | {one.value.kind.dtype for one in program.inputs}
    dtypes |= {coarsest(block) for block in program.inner}
    return next((dtype for dtype in ("float16", "float32", "float64") if dtype in dtypes), "float64")


def coarsest_behind(program: Program, value: Value) -> str:
    """The coarsest float dtype among the values that this one is computed from."""
    if program.inner:
        return coarsest(program)
    needed, dtypes = {value.name}, {value.kind.dtype}
    for step in reversed(program.steps):
        if step.result.name in needed:
            needed |= set(step.inputs)
    known = [*(step.result for step in program.steps), *(one.value for one in program.inputs)]
    dtypes |= {one.kind.dtype for one in known if one.name in needed}
    return next((dtype for dtype in ("float16", "float32", "float64") if dtype in dtypes), "float64")


@dataclass(frozen=True)
class Expected:
    """The expected values of one output, and the elements at which they are certain."""

    truth: Array
    tolerance: Array | None
    decided: Array


def expect(
    program: Program, at: tuple[int, int], inputs: list[Array], seed: int, flavor: str, by_output: bool = True
) -> list[Expected] | None:
    """The outputs at a point; None where numbers grow too large to say."""
    try:
        runs = [_outputs(program, at, inputs, None)]
        runs += [_outputs(program, at, inputs, one) for one in (ROUNDED, *(ABSOLUTE if flavor == "large" else ()))]
        runs += [_outputs(program, at, inputs, np.random.default_rng([seed, i])) for i in range(MOVED)]
    except TooLargeError:
        return None
    found = []
    for value, (truth, *moved) in zip(program.outputs, zip(*runs, strict=True), strict=True):
        dtype = coarsest_behind(program, value) if by_output else coarsest(program)
        plain, floor = PLAIN[dtype], FLOOR[dtype] if by_output else 1e-6
        if truth.dtype.kind != "f":
            found.append(Expected(truth, None, np.all([truth == other for other in moved], axis=0)))
            continue
        finite = np.abs(truth[np.isfinite(truth)])
        tolerance = plain * (np.nan_to_num(np.abs(truth)) + 0.1 * finite.max(initial=0.0) + floor)
        with np.errstate(invalid="ignore"):
            gaps = [np.where(truth == other, 0.0, np.abs(truth - other)) for other in moved]
        both_nan = np.all([np.isnan(truth) == np.isnan(other) for other in moved], axis=0)
        steady = np.all([(gap * 4 <= tolerance) | np.isnan(truth) for gap in gaps], axis=0)
        found.append(Expected(truth, tolerance, both_nan & steady))
    return found


def _outputs(program: Program, at: tuple[int, int], inputs: list[Array], noise: Noise) -> list[Array]:
    values = {
        one.value.name: settle(array, one.value.kind.dtype, noise)
        for one, array in zip(program.inputs, inputs, strict=True)
    }
    found = run_steps(program, at, values, noise)
    return [found[value.name] for value in program.outputs]


def differences(expected: list[Expected], got: list[Array], dtypes: list[str]) -> list[str]:
    """Describe what is wrong with an answer."""
    if len(expected) != len(got):
        return [f"{len(got)} outputs instead of {len(expected)}"]
    said = []
    for i, (want, have, dtype) in enumerate(zip(expected, got, dtypes, strict=True)):
        if have.shape != want.truth.shape:
            said.append(f"output {i}: shape {have.shape} instead of {want.truth.shape}")
        elif str(have.dtype) != dtype:
            said.append(f"output {i}: {have.dtype} instead of {dtype}")
        elif (bad := _bad(want, have)).any():
            place = tuple(int(k) for k in np.argwhere(bad)[0])
            count = f"{bad.sum()} of {bad.size}"
            said.append(f"output {i}{list(place)}: {have[place]} instead of {want.truth[place]}; {count}")
    return said


def _bad(want: Expected, have: Array) -> Array:
    if want.tolerance is None:
        return np.asarray((have != want.truth) & want.decided)
    wide = have.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = (np.abs(wide - want.truth) <= want.tolerance) | (wide == want.truth)
    return np.asarray(~(near | (np.isnan(wide) & np.isnan(want.truth))) & want.decided)


def well_conditioned(program: Program) -> bool:
    """Every element decided and finite, at a few points with ordinary values."""
    for i, at in enumerate(((1, 1), (2, 3), (3, 6))):
        rng = np.random.default_rng([7, i])
        expected = expect(program, at, [make(one, at, rng, "normal") for one in program.inputs], i, "normal", False)
        if expected is None:
            return False
        if not all(e.decided.all() and (e.tolerance is None or np.isfinite(e.truth).all()) for e in expected):
            return False
    return True


def check(program: Program, run: Callable[[list[Array]], list[Array]], seed: int) -> tuple[list[str], int, int]:
    """An implementation at every size of the domain: what is wrong, samples judged, elements left undecided."""
    wrong, judged, undecided = [], 0, 0
    dtypes = _dtypes(program)
    for at in POINTS:
        for number, flavor in enumerate(FLAVORS):
            rng = np.random.default_rng([seed, *at, number])
            inputs = [make(one, at, rng, flavor) for one in program.inputs]
            expected = expect(program, at, inputs, seed + number, flavor)
            if expected is None:
                continue
            said = _ask(run, inputs, expected, dtypes)
            judged += 1
            undecided += sum(int((~e.decided).sum()) for e in expected)
            wrong += [f"batch={at[0]}, n={at[1]}, {flavor}: {one}" for one in said]
    return wrong, judged, undecided


def check_at(
    program: Program, run: Callable[[list[Array]], list[Array]], at: tuple[int, int], inputs: list[Array]
) -> list[str]:
    """Describe what is wrong at given inputs."""
    expected = expect(program, at, inputs, 0, "large")
    return [] if expected is None else _ask(run, inputs, expected, _dtypes(program))


def _dtypes(program: Program) -> list[str]:
    return [value.kind.dtype for value in program.outputs]


def _ask(
    run: Callable[[list[Array]], list[Array]], inputs: list[Array], expected: list[Expected], dtypes: list[str]
) -> list[str]:
    try:
        return differences(expected, run(inputs), dtypes)
    except Exception as error:
        return [f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"]
