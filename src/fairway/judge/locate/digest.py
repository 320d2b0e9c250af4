"""A value in a few numbers, by which it is known again without being kept.

Two arrays are *the same* where random projections of their elements in order agree, and *shuffled* where only what does
not hang on the order does. A projection's difference is about as large as the error itself, so that "the same" has
a tolerance, in units of the value's own size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fairway.judge.yardstick import Array, Real

HUGE = 1e30
"""Masks are filled with the lowest number of a dtype; beyond this a number counts as infinite."""

EQUAL = 1e-6
"""As a part of their size, two values that are computed in the same way differ by no more."""

PROJECTIONS = 6
CHUNK = 1 << 16


@dataclass(frozen=True)
class Digest:
    """What is kept of an array."""

    shape: tuple[int, ...]
    dtype: str
    size: int
    norm: float
    odd: tuple[int, int, int]
    """How many elements are NaN, beyond HUGE, below -HUGE."""
    ordered: tuple[float, ...]
    """Projections of the elements in order."""
    anyhow: tuple[float, ...]
    """Sums and extremes, whatever the order; each moves by no more than an error does."""
    plain: bool
    """All elements are alike, so that finding them elsewhere says nothing."""

    @property
    def spacing(self) -> float:
        """From its largest element to the next number of its dtype; 0 for whole numbers."""
        if self.dtype not in ("float16", "float32", "float64") or not self.size:
            return 0.0
        *_, low, high = self.anyhow
        return float(np.finfo(self.dtype).eps) * max(abs(low), abs(high))

    def error(self, other: Digest) -> float:
        """How far another value is off, as a part of this one's size; infinite where it has other elements."""
        if self.size != other.size or self.odd != other.odd:
            return float("inf")
        scale = max(self.norm, other.norm)
        if scale == 0:
            return 0.0
        return float(np.max(np.abs(np.subtract(self.ordered, other.ordered)))) / scale

    def equals(self, other: Digest) -> bool:
        """Whether it is the same value, computed in the same way."""
        return self.shape == other.shape and self.error(other) <= EQUAL

    def shuffled(self, other: Digest, tolerance: float) -> bool:
        """Whether the elements are the same but for their order."""
        if self.size != other.size or self.odd != other.odd:
            return False
        scale = max(self.norm, other.norm)
        return float(np.max(np.abs(np.subtract(self.anyhow, other.anyhow)))) <= tolerance * scale


def digest(array: Array) -> Digest | None:
    """None for what are no numbers."""
    if array.dtype.kind not in "biufc":
        return None
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    flat = np.ascontiguousarray(array).reshape(-1)
    size = flat.size
    ordered = np.zeros(PROJECTIONS)
    square = total = absolute = bent = 0.0
    odd = np.zeros(3, dtype=np.int64)
    low, high = np.inf, -np.inf
    for start in range(0, size, CHUNK):
        part = flat[start : start + CHUNK].astype(np.float64)
        odd += (np.isnan(part).sum(), (part > HUGE).sum(), (part < -HUGE).sum())
        if odd.any():
            part = np.where(np.abs(part) <= HUGE, part, 0.0)  # NaN compares false
        # Not by BLAS: its threads wait for one another in a loop, which takes ten times as long on a busy machine.
        ordered += _turns(size, start) * np.einsum("ij,j->i", _signs(min(size, CHUNK))[:, : part.size], part)
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


def _turns(size: int, start: int) -> Real:
    """A sign for each projection, another set for each chunk, so that chunks that change places are told apart."""
    turns = np.random.default_rng((size, start)).integers(0, 2, PROJECTIONS)
    return turns.astype(np.float64) * 2 - 1


@lru_cache(maxsize=64)
def _signs(count: int) -> Real:
    """Random signs, the same for every array of that size."""
    signs = np.random.default_rng(count).integers(0, 2, (PROJECTIONS, count), dtype=np.int8)
    return signs.astype(np.float64) * 2 - 1
