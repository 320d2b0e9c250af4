"""Digests: a few numbers by which a value is recognized without being kept.

Two arrays are *the same* if random projections of their elements in order agree. They are *shuffled* if only the
numbers that do not depend on the order agree. A projection's difference is about as large as the error itself, so "the
same" has a tolerance, in units of the value's own size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fairway.judge.yardstick import Array, FloatArray

HUGE_VALUE = 1e30
"""Larger numbers count as infinite, because masks are filled with the lowest number of a dtype."""

EQUAL_ERROR = 1e-6
"""The largest relative difference of two values that are computed in the same way."""

PROJECTION_COUNT = 6
DIGEST_CHUNK_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class Digest:
    """A summary of an array in a few numbers, from which two arrays are compared."""

    shape: tuple[int, ...]
    dtype: str
    size: int
    norm: float
    special_counts: tuple[int, int, int]
    """The numbers of elements that are NaN, above HUGE_VALUE, and below -HUGE_VALUE."""
    projections: tuple[float, ...]
    """Projections of the elements in order."""
    order_free: tuple[float, ...]
    """Sums and extremes, which do not depend on the order. Each moves by no more than an error does."""
    is_constant: bool
    """True if all elements are equal, so that an equal value elsewhere proves nothing."""

    @property
    def number_spacing(self) -> float:
        """The distance from its largest element to the next number of its dtype, or 0 for whole numbers."""
        if self.dtype not in ("float16", "float32", "float64") or not self.size:
            return 0.0
        *_, low, high = self.order_free
        return float(np.finfo(self.dtype).eps) * max(abs(low), abs(high))

    def measure_error(self, other: Digest) -> float:
        """Return the relative error of another value, or infinity if it has another number of elements."""
        if self.size != other.size or self.special_counts != other.special_counts:
            return float("inf")
        scale = max(self.norm, other.norm)
        if scale == 0:
            return 0.0
        return float(np.max(np.abs(np.subtract(self.projections, other.projections)))) / scale

    def is_equal_to(self, other: Digest) -> bool:
        """Return whether both are the same value, computed in the same way."""
        return self.shape == other.shape and self.measure_error(other) <= EQUAL_ERROR

    def is_shuffle_of(self, other: Digest, tolerance: float) -> bool:
        """Return whether the elements are the same in any order."""
        if self.size != other.size or self.special_counts != other.special_counts:
            return False
        scale = max(self.norm, other.norm)
        return float(np.max(np.abs(np.subtract(self.order_free, other.order_free)))) <= tolerance * scale


def compute_digest(array: Array) -> Digest | None:
    """Return the digest of an array, or None if it does not contain numbers."""
    if array.dtype.kind not in "biufc":
        return None
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    flat = np.ascontiguousarray(array).reshape(-1)
    size = flat.size
    ordered = np.zeros(PROJECTION_COUNT)
    square = total = absolute = bent = 0.0
    odd = np.zeros(3, dtype=np.int64)
    low, high = np.inf, -np.inf
    for start in range(0, size, DIGEST_CHUNK_ELEMENTS):
        part = flat[start : start + DIGEST_CHUNK_ELEMENTS].astype(np.float64)
        odd += (np.isnan(part).sum(), (part > HUGE_VALUE).sum(), (part < -HUGE_VALUE).sum())
        if odd.any():
            part = np.where(np.abs(part) <= HUGE_VALUE, part, 0.0)  # NaN compares false
        # Without BLAS: its threads spin while they wait, which takes ten times as long on a busy machine.
        ordered += _draw_chunk_signs(size, start) * np.einsum(
            "ij,j->i", _draw_signs(min(size, DIGEST_CHUNK_ELEMENTS))[:, : part.size], part
        )
        square += float(np.square(part).sum())
        total += float(part.sum())
        absolute += float(np.abs(part).sum())
        bent += float((part * np.abs(part)).sum())
        low, high = min(low, float(part.min())), max(high, float(part.max()))
    norm = float(np.sqrt(square))
    root = np.sqrt(size) if size else 1.0
    anyhow = (total / root, absolute / root, bent / norm if norm else 0.0, norm, low, high) if size else (0.0,)
    return Digest(
        tuple(array.shape),
        str(array.dtype),
        size,
        norm,
        (int(odd[0]), int(odd[1]), int(odd[2])),
        tuple(ordered.tolist()),
        anyhow,
        size < 2 or low == high,
    )


def _draw_chunk_signs(size: int, start: int) -> FloatArray:
    """Return a sign for each projection, different for each chunk, so that the order of chunks matters."""
    turns = np.random.default_rng((size, start)).integers(0, 2, PROJECTION_COUNT)
    return turns.astype(np.float64) * 2 - 1


@lru_cache(maxsize=64)
def _draw_signs(count: int) -> FloatArray:
    """Return random signs, the same for every array of that size."""
    signs = np.random.default_rng(count).integers(0, 2, (PROJECTION_COUNT, count), dtype=np.int8)
    return signs.astype(np.float64) * 2 - 1
