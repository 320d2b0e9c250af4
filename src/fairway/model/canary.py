"""The canary: inputs that anybody can draw again without PyTorch, and what a file answered to them when it was judged.

A server draws the same inputs after it has loaded the file and compares. Only some numbers of each output are kept.
The generator is numpy's RandomState, whose stream never changes between versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fairway.model.dims import Point
from fairway.model.spec import TensorSpec

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]

SEED = 20
KEPT = 16
"""Numbers of each output that are kept."""
BELOW = 10
"""Whole numbers without a declared limit are drawn below it, as the evidence does."""
APART = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-4}
"""How far a number may be off, in parts of the output's largest: other machines add up in another order."""


def draw(specs: Sequence[TensorSpec], point: Point, seed: int = SEED, scale: float = 1.0) -> Feeds:
    """Legal inputs at these sizes. Floats without declared ends are normal, times `scale`."""
    generator = np.random.RandomState(seed)
    return {spec.name: _tensor(spec, point, generator, scale) for spec in specs}


def _tensor(spec: TensorSpec, point: Point, generator: np.random.RandomState, scale: float) -> Array:
    shape, values = spec.sizes(point), spec.values
    made: Any
    if values.mask is not None:
        real = generator.randint(1, max(shape[-1], 1) + 1, (*shape[:-1], 1))
        place = np.arange(shape[-1])
        keep = place >= shape[-1] - real if "left" in values.mask else place < real
        made = keep if values.mask.startswith("keep") else ~keep
    elif values.lengths is not None:
        most = values.lengths.at(point)
        made = generator.randint(min(1, most), most + 1, shape)
    elif "float" in spec.dtype:
        if values.low is not None and values.high is not None:
            made = generator.uniform(values.low, values.high, shape)
        else:
            made = generator.normal(size=shape) * scale
    elif spec.dtype == "bool":
        made = generator.uniform(size=shape) < 0.5
    else:
        low = int(values.low or 0)
        high = values.below or (int(values.high) + 1 if values.high is not None else BELOW)
        made = generator.randint(low, high, shape, np.int64)
    return np.asarray(made, spec.dtype, order="C")


def note(specs: Sequence[TensorSpec], point: Point, run: Callable[[Feeds], Mapping[str, Array]]) -> dict[str, Any]:
    """What goes into the record: the sizes, and some numbers of each output; or why there are none."""
    try:
        answers = run(draw(specs, point))
        return {"seed": SEED, "point": dict(point), "outputs": {name: _kept(a) for name, a in answers.items()}}
    except Exception as error:
        return {"none": f"{type(error).__name__}: {error!s:.200}"}


def _kept(array: Array) -> dict[str, Any]:
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array.reshape(-1)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "largest": float(np.abs(finite.astype(np.float64)).max()) if finite.size else 0.0,
        "numbers": [float(one) if np.isfinite(one) else None for one in array.reshape(-1)[_places(array.size)]],
    }


def _places(size: int) -> Array:
    """Evenly over the whole, the first and the last among them."""
    return np.unique(np.linspace(0, size - 1, KEPT).astype(np.int64)) if size else np.zeros(0, np.int64)


def unlike(kept: Any, array: Array) -> str | None:
    """How an answer differs from the one in the record; None where it is the same."""
    try:
        if [array.dtype.name, list(array.shape)] != [kept["dtype"], kept["shape"]]:
            return f"is {array.dtype.name}{list(array.shape)}, the record has {kept['dtype']}{kept['shape']}"
        got = array.reshape(-1)[_places(array.size)].astype(np.float64)
        told = np.array([np.nan if one is None else one for one in kept["numbers"]], np.float64)
        largest = float(kept["largest"])
    except (KeyError, TypeError, ValueError) as error:
        return f"cannot be compared, the record's canary is damaged: {error!r:.100}"
    if told.shape != got.shape or not np.array_equal(np.isfinite(told), np.isfinite(got)):
        return "has NaN or infinity in other places than the record"
    off = np.abs(got - told)[np.isfinite(told)]
    allowed = APART.get(array.dtype.name, 0.0) * largest
    if off.size and off.max() > allowed:
        return f"is off by {off.max():.2g} from the record's numbers, where {allowed:.2g} is allowed"
    return None
