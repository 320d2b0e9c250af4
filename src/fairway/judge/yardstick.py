"""The yardstick: how far from the truth a file may be, given how far PyTorch itself is.

Truth is the model in float64. PyTorch's own distance from it is measured at every sample, element by element, and kept
in cells: one for each magnitude of the true value and each position along the last axis, because an output whose
elements span magnitudes or channels has no single error. The candidate may be `FACTOR` times as far, plus a few units
in the last place. If float64 cannot run, stated tolerances take its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fairway.judge.cells import BUCKETS, TOPS, ZEROS, Array, Cells, Index, Real, merge

__all__ = ["FACTOR", "STATED", "Array", "Real", "Yardstick", "eps"]

FACTOR = 10.0
"""How many times PyTorch's own error the candidate's may be."""

ULPS = 16.0
"""Units in the last place that are granted in addition, for values that PyTorch happens to hit exactly."""

DENORMAL_STEPS = 4.0
"""Smallest steps of the dtype that are granted in addition, for values that have no digits left."""

STATED = {"float16": 2e-2, "bfloat16": 8e-2, "float32": 2e-4, "float64": 1e-9}
"""Relative tolerances by dtype, used only if there is no float64 truth; evidence says when they were. An output that
is float64 itself has its tolerance in addition: computed in float64 throughout, it is its own truth."""

SHARE_OF_TYPICAL = 0.05
"""A stated tolerance is relative to the element, or to this share of the typical magnitude at its position and in its
row: small parts of a larger whole carry its rounding."""

POSITION_ELEMENTS = 16
"""Elements from which a position's own error is learnt. The largest of fewer can be tiny by chance: such positions
are held to the largest error of all positions."""

FURTHEST = 8
"""Buckets above its own from which an element's error is learnt, if there are not enough elements in those nearer."""

COMMON_SHARE = 1 / 8
"""Share of the positions whose errors are left out of the level that every position may have."""

STEP_SHARE = 1 / 4
"""Share of a position's elements below which errors that stand out are jumps of a step function. They are counted,
and free no other element."""

NOISE = 2.0**-44
"""Share of the largest value below which the float64 truth itself is rounding noise."""

_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_STEPS = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
Whole = npt.NDArray[np.int64]


def eps(dtype: str) -> float:
    return _EPS.get(dtype, _EPS["float32"])


@dataclass
class Yardstick:
    """Tolerance for one output, learnt from PyTorch's own errors at every sample of one kind of values."""

    dtype: str
    truthful: bool
    """Whether float64 was there to measure from."""
    cells: Cells = field(default_factory=Cells)
    largest: float = 0.0
    _cache: dict[tuple[int, int, int], Real] = field(default_factory=dict, repr=False)

    def learn(self, cells: Cells, largest: float) -> None:
        """Add the errors of one sample, and the magnitude of its largest true value."""
        self.cells = merge(self.cells, cells)
        self.largest = max(self.largest, largest)
        self._cache = {}

    def copy(self) -> Yardstick:
        """Return one that learns without changing this one."""
        return Yardstick(self.dtype, self.truthful, self.cells, self.largest)

    def allow(self, index: Index) -> Real:
        """Return what the candidate's error may be in each of these cells."""
        if not index.size:
            return np.zeros(0)
        known = self.cells.index
        buckets, positions = index % BUCKETS, index // BUCKETS
        low, high = int(buckets.min()), int(buckets.max())
        count = int(positions.max()) + 1
        if known.size:
            known_buckets = known % BUCKETS
            low, high = min(low, int(known_buckets.min())), max(high, int(known_buckets.max()))
            count = max(count, int(known[-1]) // BUCKETS + 1)
        key = low, high, count
        if key not in self._cache:
            self._cache[key] = self._tolerance(*key)
        allowed: Real = self._cache[key][positions, buckets - low]
        return allowed

    def _tolerance(self, low: int, high: int, count: int) -> Real:
        """By position and bucket, from bucket `low` to bucket `high`."""
        tops = TOPS[low : high + 1]
        known = self.cells
        places = known.index // BUCKETS, known.index % BUCKETS - low
        seen = np.zeros((count, len(tops)), dtype=np.int64)
        seen[places] = known.count
        floor = ULPS * eps(self.dtype) * tops + DENORMAL_STEPS * _STEPS.get(self.dtype, _STEPS["float32"])
        if not self.truthful:
            return np.asarray(self._stated(tops, seen, low) + floor)
        own, jumps, jumped = np.zeros(seen.shape), np.zeros(seen.shape), np.zeros_like(seen)
        own[places], jumps[places], jumped[places] = known.own, known.jump, known.jumps
        smooth = jumped.sum(1) > STEP_SHARE * seen.sum(1)
        own[smooth] = np.maximum(own, jumps)[smooth]
        tolerance = FACTOR * self._level(own, seen, tops) + floor
        if self.dtype == "float64":
            tolerance = tolerance + self._stated(tops, seen, low)
        return np.asarray(tolerance)

    def _level(self, own: Real, seen: Whole, tops: Real) -> Real:
        """PyTorch's error by position and bucket, as far as it is known there, else over all positions.

        Errors of smaller elements count for larger ones, and those of the next two buckets for smaller ones.
        """
        level = np.maximum.accumulate(own, axis=1)
        for shift in (1, 2):
            level[:, :-shift] = np.maximum(level[:, :-shift], own[:, shift:])
        noise = int(np.searchsorted(tops, NOISE * self.largest))
        level[:, :noise] = np.maximum(level[:, :noise], own[:, :noise].max(1, initial=0.0, keepdims=True))
        nearby = np.cumsum(seen, axis=1)
        nearby = np.concatenate([nearby[:, 2:], *[nearby[:, -1:]] * min(2, nearby.shape[1])], axis=1)
        level = np.maximum(level, _common(level, nearby))
        return np.where(nearby < POSITION_ELEMENTS, _pooled(own, seen, level), level)

    def _stated(self, tops: Real, seen: Whole, low: int) -> Real:
        """The stated tolerance, of the element or of a share of what is typical for its position or the output."""
        counts = seen if low > ZEROS else np.concatenate([np.zeros_like(seen[:, :1]), seen[:, 1:]], axis=1)
        typical = np.maximum(_typical(counts, tops), _typical(counts.sum(0, keepdims=True), tops))
        stated = STATED.get(self.dtype, STATED["float32"])
        return np.asarray(stated * np.maximum(tops, SHARE_OF_TYPICAL * typical[:, None]))


def _pooled(own: Real, seen: Whole, level: Real) -> Real:
    """By bucket: the largest error of all positions, in the buckets below and as far above as it takes for enough
    elements. The few smallest of an output are too few to say what its errors are."""
    worst = np.maximum.accumulate(own.max(0))
    total = np.cumsum(seen.sum(0))
    enough = np.searchsorted(total, POSITION_ELEMENTS)
    last = np.arange(len(total))
    reach = np.clip(enough, last, np.minimum(last + FURTHEST, len(total) - 1))
    return np.asarray(np.maximum(level.max(0), worst[reach]))


def _common(level: Real, nearby: Whole) -> Real:
    """By bucket: the level that all but a small share of the positions stay below."""
    known = nearby > 0
    positions = known.sum(0)
    ordered = -np.sort(-np.where(known, level, -1.0), axis=0)
    skipped = np.minimum(np.ceil(COMMON_SHARE * positions).astype(np.int64), np.maximum(positions - 1, 0))
    return np.asarray(np.maximum(np.take_along_axis(ordered, skipped[None], axis=0), 0.0))


def _typical(counts: Whole, tops: Real) -> Real:
    """By position: the magnitude that half of its elements stay below; 0 if there are none."""
    half = counts.sum(1) / 2
    at = np.argmax(np.cumsum(counts, axis=1) >= half[:, None], axis=1)
    return np.where(half > 0, tops[at] / 2, 0.0)
