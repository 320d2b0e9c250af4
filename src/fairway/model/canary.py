"""The canary: inputs that can be drawn again without PyTorch, and a few numbers that the file returned for them.

A server draws the same inputs after it has loaded the file and compares the outputs with the record.
The generator is numpy's RandomState, whose stream never changes between versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from fairway.model.dims import Point
from fairway.model.spec import TensorSpec

Array: TypeAlias = np.ndarray[Any, Any]
Feeds: TypeAlias = dict[str, Array]

CANARY_SEED = 20
KEPT_NUMBERS = 16
"""Numbers of each output that go into the record."""
DEFAULT_INTEGER_LIMIT = 10
"""Integers without a declared limit are drawn from below this number, as in the evidence."""
RELATIVE_TOLERANCES = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-4}
"""Allowed differences by dtype, as a share of the output's largest number. Machines differ in the order of sums."""


def draw_canary_inputs(specs: Sequence[TensorSpec], point: Point, seed: int = CANARY_SEED, scale: float = 1.0) -> Feeds:
    """Return legal inputs at a point. Floats without declared ends are normally distributed, times `scale`."""
    generator = np.random.RandomState(seed)
    return {spec.name: _draw_tensor(spec, point, generator, scale) for spec in specs}


def _draw_tensor(spec: TensorSpec, point: Point, generator: np.random.RandomState, scale: float) -> Array:
    shape, values = spec.sizes(point), spec.values
    drawn: Array | int | float
    if values.mask is not None:
        real = generator.randint(1, max(shape[-1], 1) + 1, (*shape[:-1], 1))
        place = np.arange(shape[-1])
        keep = place >= shape[-1] - real if "left" in values.mask else place < real
        drawn = keep if values.mask.startswith("keep") else ~keep
    elif values.lengths is not None:
        most = values.lengths.at(point)
        drawn = generator.randint(min(1, most), most + 1, shape)
    elif values.under is not None:
        drawn = generator.randint(0, max(values.under.at(point), 1), shape)
    elif "float" in spec.dtype:
        if values.low is not None and values.high is not None:
            drawn = generator.uniform(values.low, values.high, shape)
        else:
            drawn = generator.normal(size=shape) * scale
    elif spec.dtype == "bool":
        drawn = generator.uniform(size=shape) < 0.5
    else:
        low = int(values.low or 0)
        high = values.below or (int(values.high) + 1 if values.high is not None else DEFAULT_INTEGER_LIMIT)
        drawn = generator.randint(low, high, shape, np.int64)
    return np.asarray(drawn, spec.dtype, order="C")


def make_canary(
    specs: Sequence[TensorSpec], point: Point, run: Callable[[Feeds], Mapping[str, Array]]
) -> dict[str, object]:
    """Return the record's canary: the sizes and some numbers of each output, or the reason for having none."""
    try:
        answers = run(draw_canary_inputs(specs, point))
        return {
            "seed": CANARY_SEED,
            "point": dict(point),
            "outputs": {name: _summarize_output(array) for name, array in answers.items()},
        }
    except Exception as error:
        return {"none": f"{type(error).__name__}: {error!s:.200}"}


def _summarize_output(array: Array) -> dict[str, object]:
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array.reshape(-1)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "largest": float(np.abs(finite.astype(np.float64)).max()) if finite.size else 0.0,
        "numbers": [
            float(number) if np.isfinite(number) else None for number in array.reshape(-1)[_choose_places(array.size)]
        ],
    }


def _choose_places(size: int) -> Array:
    """Return the indices of the numbers to keep: spread evenly, with the first and the last among them."""
    return np.unique(np.linspace(0, size - 1, KEPT_NUMBERS).astype(np.int64)) if size else np.zeros(0, np.int64)


class RecordedOutput(Protocol):
    """The numbers of one output that a record keeps."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def largest(self) -> float: ...

    @property
    def numbers(self) -> tuple[float | None, ...]: ...


def describe_mismatch(kept: RecordedOutput, array: Array) -> str | None:
    """Say how an output differs from the one in the record, or return None if it does not."""
    if (array.dtype.name, array.shape) != (kept.dtype, kept.shape):
        return f"is {array.dtype.name}{list(array.shape)}, the record has {kept.dtype}{list(kept.shape)}"
    got = array.reshape(-1)[_choose_places(array.size)].astype(np.float64)
    expected = np.array([np.nan if number is None else number for number in kept.numbers], np.float64)
    if expected.shape != got.shape or not np.array_equal(np.isfinite(expected), np.isfinite(got)):
        return "has NaN or infinity in other places than the record"
    off = np.abs(got - expected)[np.isfinite(expected)]
    allowed = RELATIVE_TOLERANCES.get(array.dtype.name, 0.0) * kept.largest
    if off.size and off.max() > allowed:
        return f"is off by {off.max():.2g} from the record's numbers; {allowed:.2g} is allowed"
    return None
