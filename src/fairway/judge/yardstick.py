"""The yardstick: the distance from the truth that is allowed, given PyTorch's own distance.

Truth is the model in float64. PyTorch's own distance from it is measured at every sample, element by element, and kept
in cells: one for each magnitude of the true value and each position along the last axis, because an output whose
elements span magnitudes or channels has no single error. The candidate may be `ERROR_FACTOR` times as far, plus a few
units in the last place. If float64 cannot run, stated tolerances are used instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fairway.judge.cells import BUCKET_COUNT, BUCKET_TOPS, ZERO_BUCKET, Array, Cells, FloatArray, IntArray, merge_cells

__all__ = ["ERROR_FACTOR", "STATED_TOLERANCES", "Array", "FloatArray", "Yardstick", "get_eps"]

ERROR_FACTOR = 10.0
"""The candidate's error may be this many times PyTorch's own."""

FREE_ULPS = 16.0
"""Units in the last place that are always allowed, for values that PyTorch happens to compute exactly."""

FREE_DENORMAL_STEPS = 4.0
"""Smallest steps of the dtype that are always allowed, for values that have no digits left."""

STATED_TOLERANCES = {"float16": 2e-2, "bfloat16": 8e-2, "float32": 2e-4, "float64": 1e-9}
"""Relative tolerances by dtype, used only if there is no float64 truth. The evidence reports that. A float64 output
has its tolerance in addition to the learned error: it is its own truth, so PyTorch's error at it is 0."""

SHARE_OF_TYPICAL = 0.05
"""A stated tolerance is relative to the element, or to this share of the typical magnitude at its position and in its
row, because small elements carry the rounding of the larger ones."""

MIN_POSITION_ELEMENTS = 16
"""A position's own error is learned from at least this many elements. The largest error of fewer can be tiny by chance,
so such positions get the largest error of all positions."""

MAX_BUCKETS_ABOVE = 8
"""An error is learned from up to this many buckets above an element's own, if there are few elements in nearer ones."""

COMMON_SHARE = 1 / 8
"""The level that is allowed at every position leaves out this share of the positions, those with the largest errors."""

STEP_SHARE = 1 / 4
"""If no more than this share of a position's elements have outstanding errors, these are jumps of a step function. They
are counted, and do not raise the tolerance of other elements."""

NOISE_SHARE = 2.0**-44
"""Below this share of the largest value, the float64 truth itself is rounding noise."""

_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_SMALLEST_STEPS = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}


def get_eps(dtype: str) -> float:
    return _EPS.get(dtype, _EPS["float32"])


@dataclass
class Yardstick:
    """The tolerance of one output, learned from PyTorch's own errors at every sample of one flavor."""

    dtype: str
    truthful: bool
    """True if there is a float64 truth to measure from."""
    cells: Cells = field(default_factory=Cells)
    largest: float = 0.0
    _cache: dict[tuple[int, int, int], FloatArray] = field(default_factory=dict, repr=False)

    def learn(self, cells: Cells, largest: float) -> None:
        """Add the errors of one sample, and the magnitude of its largest true value."""
        self.cells = merge_cells(self.cells, cells)
        self.largest = max(self.largest, largest)
        self._cache = {}

    def copy(self) -> Yardstick:
        """Return a copy that learns without changing this one."""
        return Yardstick(self.dtype, self.truthful, self.cells, self.largest)

    def allow(self, index: IntArray) -> FloatArray:
        """Return the error that the candidate may have in each of these cells."""
        if not index.size:
            return np.zeros(0)
        known = self.cells.index
        buckets, positions = index % BUCKET_COUNT, index // BUCKET_COUNT
        low, high = int(buckets.min()), int(buckets.max())
        count = int(positions.max()) + 1
        if known.size:
            known_buckets = known % BUCKET_COUNT
            low, high = min(low, int(known_buckets.min())), max(high, int(known_buckets.max()))
            count = max(count, int(known[-1]) // BUCKET_COUNT + 1)
        key = low, high, count
        if key not in self._cache:
            self._cache[key] = self._compute_tolerance(*key)
        allowed: FloatArray = self._cache[key][positions, buckets - low]
        return allowed

    def _compute_tolerance(self, low: int, high: int, count: int) -> FloatArray:
        """Return the tolerance by position and bucket, from bucket `low` to bucket `high`."""
        tops = BUCKET_TOPS[low : high + 1]
        known = self.cells
        places = known.index // BUCKET_COUNT, known.index % BUCKET_COUNT - low
        seen = np.zeros((count, len(tops)), dtype=np.int64)
        seen[places] = known.count
        floor = FREE_ULPS * get_eps(self.dtype) * tops + FREE_DENORMAL_STEPS * _SMALLEST_STEPS.get(
            self.dtype, _SMALLEST_STEPS["float32"]
        )
        if not self.truthful:
            return np.asarray(self._compute_stated(tops, seen, low) + floor)
        own, jumps, jumped = np.zeros(seen.shape), np.zeros(seen.shape), np.zeros_like(seen)
        own[places], jumps[places], jumped[places] = known.own, known.jump, known.jumps
        smooth = jumped.sum(1) > STEP_SHARE * seen.sum(1)
        own[smooth] = np.maximum(own, jumps)[smooth]
        tolerance = ERROR_FACTOR * self._compute_level(own, seen, tops) + floor
        if self.dtype == "float64":
            tolerance = tolerance + self._compute_stated(tops, seen, low)
        return np.asarray(tolerance)

    def _compute_level(self, own: FloatArray, seen: IntArray, tops: FloatArray) -> FloatArray:
        """Return PyTorch's error by position and bucket, or that of all positions if a position has few elements.

        Errors of smaller elements count for larger ones, and those of the next two buckets for smaller ones.
        """
        level = np.maximum.accumulate(own, axis=1)
        for shift in (1, 2):
            level[:, :-shift] = np.maximum(level[:, :-shift], own[:, shift:])
        noise = int(np.searchsorted(tops, NOISE_SHARE * self.largest))
        level[:, :noise] = np.maximum(level[:, :noise], own[:, :noise].max(1, initial=0.0, keepdims=True))
        nearby = np.cumsum(seen, axis=1)
        nearby = np.concatenate([nearby[:, 2:], *[nearby[:, -1:]] * min(2, nearby.shape[1])], axis=1)
        level = np.maximum(level, _find_common_level(level, nearby))
        return np.where(nearby < MIN_POSITION_ELEMENTS, _pool_levels(own, seen, level), level)

    def _compute_stated(self, tops: FloatArray, seen: IntArray, low: int) -> FloatArray:
        """Return the stated tolerance of the element, or of a share of the typical magnitude at its position."""
        counts = seen if low > ZERO_BUCKET else np.concatenate([np.zeros_like(seen[:, :1]), seen[:, 1:]], axis=1)
        typical = np.maximum(
            _find_typical_magnitudes(counts, tops), _find_typical_magnitudes(counts.sum(0, keepdims=True), tops)
        )
        stated = STATED_TOLERANCES.get(self.dtype, STATED_TOLERANCES["float32"])
        return np.asarray(stated * np.maximum(tops, SHARE_OF_TYPICAL * typical[:, None]))


def _pool_levels(own: FloatArray, seen: IntArray, level: FloatArray) -> FloatArray:
    """Return, by bucket, the largest error of all positions in it and in the buckets below. A bucket with few elements
    also gets the errors of the next buckets above, because few elements are not enough to learn an error from."""
    worst = np.maximum.accumulate(own.max(0))
    total = np.cumsum(seen.sum(0))
    enough = np.searchsorted(total, MIN_POSITION_ELEMENTS)
    last = np.arange(len(total))
    reach = np.clip(enough, last, np.minimum(last + MAX_BUCKETS_ABOVE, len(total) - 1))
    return np.asarray(np.maximum(level.max(0), worst[reach]))


def _find_common_level(level: FloatArray, nearby: IntArray) -> FloatArray:
    """Return, by bucket, the level that only a small share of the positions exceeds."""
    known = nearby > 0
    positions = known.sum(0)
    ordered = -np.sort(-np.where(known, level, -1.0), axis=0)
    skipped = np.minimum(np.ceil(COMMON_SHARE * positions).astype(np.int64), np.maximum(positions - 1, 0))
    return np.asarray(np.maximum(np.take_along_axis(ordered, skipped[None], axis=0), 0.0))


def _find_typical_magnitudes(counts: IntArray, tops: FloatArray) -> FloatArray:
    """Return, by position, the median magnitude of its elements, or 0 if there are none."""
    half = counts.sum(1) / 2
    at = np.argmax(np.cumsum(counts, axis=1) >= half[:, None], axis=1)
    return np.where(half > 0, tops[at] / 2, 0.0)
