"""Cells: the elements of one magnitude at one position of an output, with what is known of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Real = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

POSITIONS = 256
"""Groups that a longer axis is divided into."""

_SIDE = 16
"""Groups of each of two axes, for outputs that have channels or heads in the second axis."""

_LOWEST, _FINE_LOW, _FINE_HIGH, _HIGHEST = -1078, -150, 128, 1024
"""Powers of two: the range of float64, and in it that of float32, in which a bucket is a factor of 4 wide."""


def _edges() -> list[int]:
    coarse = 16
    return [
        *range(_LOWEST, _FINE_LOW, coarse),
        *range(_FINE_LOW, _FINE_HIGH, 2),
        *range(_FINE_HIGH, _HIGHEST + 1, coarse),
    ]


_POWERS = np.arange(_LOWEST - 1, _HIGHEST + 1)
_OF_POWER = np.searchsorted(_edges(), _POWERS, side="right").astype(np.int64)
BUCKETS = int(_OF_POWER.max()) + 1
ZEROS = 0
"""The bucket of zero."""
TOPS: Real = np.ldexp(1.0, np.minimum(np.array([*_edges(), _HIGHEST])[:BUCKETS], _HIGHEST - 1))
"""By bucket: the magnitude that its elements stay below."""


def bucket(values: Real) -> Index:
    """Return the magnitude of each value: in steps of 4 within the range of float32, and coarser beyond."""
    mantissa, exponent = np.frexp(values)
    power = np.where(np.isfinite(mantissa), exponent - 1, _HIGHEST)
    power = np.where(values == 0, _LOWEST - 1, np.clip(power, _LOWEST, _HIGHEST))
    return np.asarray(_OF_POWER[power - (_LOWEST - 1)])


def position(shape: Sequence[int], start: int, stop: int) -> Index:
    """Return the position group of the flat elements `start` to `stop`.

    It goes by the last axis; for outputs of four axes and more by the second too, which holds channels or heads.
    """
    flat = np.arange(start, stop, dtype=np.int64)
    if not shape:
        return np.zeros_like(flat)
    last = flat % shape[-1]
    if len(shape) < 4:
        return _group(last, shape[-1], POSITIONS)
    second = flat // int(np.prod(shape[2:], dtype=np.int64)) % shape[1]
    if shape[-1] == 1:
        return _group(second, shape[1], POSITIONS)
    return _group(second, shape[1], _SIDE) * _SIDE + _group(last, shape[-1], _SIDE)


def count_positions(shape: Sequence[int]) -> int:
    """Return a number that all position groups of a shape stay below."""
    return min(shape[-1], POSITIONS) if 0 < len(shape) < 4 else POSITIONS if shape else 1


def _group(place: Index, length: int, most: int) -> Index:
    return place if length <= most else place * most // length


def index_cells(magnitudes: Real, positions: Index) -> Index:
    """Return the cell of each element."""
    return positions * BUCKETS + bucket(magnitudes)


def pool(index: Index) -> Index:
    """Return the cells with all positions taken as one."""
    return index % BUCKETS


@dataclass(frozen=True)
class Cells:
    """PyTorch's own errors by cell; only cells that have elements are kept."""

    index: Index = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """In ascending order."""
    own: Real = field(default_factory=lambda: np.zeros(0))
    """The largest error, without jumps."""
    count: Index = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    jump: Real = field(default_factory=lambda: np.zeros(0))
    """The largest jump: an error that stands out from the others of its sample by far."""
    jumps: Index = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def pooled(self) -> Cells:
        """Return them with all positions taken as one, and jumps as errors like any others."""
        return collect(pool(self.index), np.maximum(self.own, self.jump), self.count)


def collect(index: Index, own: Real, count: Index | None = None) -> Cells:
    """Return the cells of elements with these errors."""
    unique, inverse = np.unique(index.ravel(), return_inverse=True)
    worst = np.zeros(len(unique))
    np.maximum.at(worst, inverse.ravel(), own.ravel())
    numbers = np.bincount(inverse.ravel(), None if count is None else count.ravel(), len(unique)).astype(np.int64)
    return Cells(unique, worst, numbers, np.zeros(len(unique)), np.zeros(len(unique), dtype=np.int64))


def merge(one: Cells, other: Cells) -> Cells:
    """Return the cells of both: the larger errors, and the sums of the counts."""
    if not one.index.size:
        return other
    index = np.union1d(one.index, other.index)
    own, jump = np.zeros(len(index)), np.zeros(len(index))
    count, jumps = np.zeros(len(index), dtype=np.int64), np.zeros(len(index), dtype=np.int64)
    for cells in (one, other):
        at = np.searchsorted(index, cells.index)
        own[at] = np.maximum(own[at], cells.own)
        jump[at] = np.maximum(jump[at], cells.jump)
        count[at] += cells.count
        jumps[at] += cells.jumps
    return Cells(index, own, count, jump, jumps)
