"""The yardstick: how far from the truth a file may be, given how far PyTorch itself is.

Truth is the model in float64. PyTorch's own distance from it is measured at every sample, element by element, and kept
by magnitude of the true value, because an output whose elements span magnitudes has no single error. The candidate
may be `FACTOR` times as far, plus a few units in the last place. Where float64 cannot run, stated
tolerances take its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Real = npt.NDArray[np.float64]

FACTOR = 10.0
"""How many times PyTorch's own error the candidate's may be."""

ULPS = 16.0
"""Units in the last place granted besides, for values that PyTorch happens to hit exactly."""

STATED = {"float16": 2e-2, "bfloat16": 8e-2, "float32": 2e-4, "float64": 1e-9}
"""Relative tolerances by dtype, used only where there is no float64 truth; evidence says when they were. An output that
is float64 itself has its tolerance besides: computed in float64 throughout, it is its own truth."""

_LOWEST, _HIGHEST, _WIDTH = -48, 48, 2
BUCKETS = (_HIGHEST - _LOWEST) // _WIDTH + 1


def eps(dtype: str) -> float:
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}.get(dtype, 2.0**-23)


def bucket(truth: Real) -> npt.NDArray[np.intp]:
    """The magnitude of each value, in steps of 4×."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.log2(np.abs(truth))
    power = np.nan_to_num(power, nan=_LOWEST, neginf=_LOWEST, posinf=_HIGHEST)
    return ((np.clip(power, _LOWEST, _HIGHEST) - _LOWEST) // _WIDTH).astype(np.intp)


def worst_by_bucket(error: Real, buckets: npt.NDArray[np.intp]) -> Real:
    worst = np.zeros(BUCKETS)
    np.maximum.at(worst, buckets.ravel(), error.ravel())
    return worst


@dataclass
class Yardstick:
    """Tolerance for one output, learnt from PyTorch's own errors at every sample of one kind of values."""

    dtype: str
    truthful: bool
    """Whether float64 was there to measure from."""
    own: Real = field(default_factory=lambda: np.zeros(BUCKETS))
    largest: float = 0.0

    def learn(self, errors: Real, largest: float) -> None:
        """From the errors of one sample by bucket, and the magnitude of its largest true value."""
        self.own = np.maximum(self.own, errors)
        self.largest = max(self.largest, largest)

    def tolerance(self) -> Real:
        """By bucket: what the candidate's error may be there."""
        top = 2.0 ** (_LOWEST + _WIDTH * np.arange(1, BUCKETS + 1))
        if not self.truthful:
            # A bucket's elements are small parts of a larger whole, whose rounding they carry: hence the scale.
            scale = top[np.nonzero(self.own)[0].max()] if self.own.any() else 0.0
            stated = STATED.get(self.dtype, STATED["float32"])
            return np.asarray(stated * np.maximum(top, 0.05 * scale))
        smaller = np.maximum.accumulate(self.own)
        larger = np.maximum(np.append(self.own[1:], 0.0), np.append(self.own[2:], [0.0, 0.0]))
        tolerance = FACTOR * np.maximum(smaller, larger) + ULPS * eps(self.dtype) * top
        if self.dtype == "float64":
            tolerance += STATED["float64"] * np.maximum(top, 0.05 * self.largest)
        return np.asarray(tolerance)
