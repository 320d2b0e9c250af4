"""Cells: the elements of one magnitude at one position of an output, with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_POSITIONS = 256
"""Groups into which a longer axis is divided."""

_MAX_SIDE_GROUPS = 16
"""Groups of each of two axes, for outputs that have channels or heads in the second axis."""

_LOWEST, _FINE_LOW, _FINE_HIGH, _HIGHEST = -1078, -150, 128, 1024
"""Powers of two: the range of float64, and inside it that of float32, in which a bucket is a factor of 4 wide."""


def _list_bucket_edges() -> list[int]:
    coarse = 16
    return [
        *range(_LOWEST, _FINE_LOW, coarse),
        *range(_FINE_LOW, _FINE_HIGH, 2),
        *range(_FINE_HIGH, _HIGHEST + 1, coarse),
    ]


_POWERS = np.arange(_LOWEST - 1, _HIGHEST + 1)
_BUCKET_OF_POWER = np.searchsorted(_list_bucket_edges(), _POWERS, side="right").astype(np.int64)
BUCKET_COUNT = int(_BUCKET_OF_POWER.max()) + 1
ZERO_BUCKET = 0
"""The bucket of zero."""
BUCKET_TOPS: FloatArray = np.ldexp(
    1.0, np.minimum(np.array([*_list_bucket_edges(), _HIGHEST])[:BUCKET_COUNT], _HIGHEST - 1)
)
"""By bucket: the magnitude below which its elements are."""


def find_buckets(values: FloatArray) -> IntArray:
    """Return the bucket of each value. A bucket spans a factor of 4 in the range of float32, and more outside it."""
    mantissa, exponent = np.frexp(values)
    power = np.where(np.isfinite(mantissa), exponent - 1, _HIGHEST)
    power = np.where(values == 0, _LOWEST - 1, np.clip(power, _LOWEST, _HIGHEST))
    return np.asarray(_BUCKET_OF_POWER[power - (_LOWEST - 1)])


def find_positions(shape: Sequence[int], start: int, stop: int) -> IntArray:
    """Return the position group of the flat elements `start` to `stop`.

    A position is a place along the last axis. For outputs of four axes and more it is also a place along the second
    axis, which holds channels or heads.
    """
    flat = np.arange(start, stop, dtype=np.int64)
    if not shape:
        return np.zeros_like(flat)
    last = flat % shape[-1]
    if len(shape) < 4:
        return _group_places(last, shape[-1], MAX_POSITIONS)
    second = flat // int(np.prod(shape[2:], dtype=np.int64)) % shape[1]
    if shape[-1] == 1:
        return _group_places(second, shape[1], MAX_POSITIONS)
    return _group_places(second, shape[1], _MAX_SIDE_GROUPS) * _MAX_SIDE_GROUPS + _group_places(
        last, shape[-1], _MAX_SIDE_GROUPS
    )


def count_positions(shape: Sequence[int]) -> int:
    """Return an upper bound of the number of position groups of a shape."""
    return min(shape[-1], MAX_POSITIONS) if 0 < len(shape) < 4 else MAX_POSITIONS if shape else 1


def _group_places(place: IntArray, length: int, most: int) -> IntArray:
    return place if length <= most else place * most // length


def index_cells(magnitudes: FloatArray, positions: IntArray) -> IntArray:
    """Return the cell of each element."""
    return positions * BUCKET_COUNT + find_buckets(magnitudes)


def pool_positions(index: IntArray) -> IntArray:
    """Return the cells with all positions merged."""
    return index % BUCKET_COUNT


@dataclass(frozen=True)
class Cells:
    """PyTorch's own errors by cell. Only cells with elements are kept."""

    index: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Cell numbers, in ascending order."""
    own: FloatArray = field(default_factory=lambda: np.zeros(0))
    """The largest error, without jumps."""
    count: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    jump: FloatArray = field(default_factory=lambda: np.zeros(0))
    """The largest jump: an error far larger than the others of its sample."""
    jumps: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def merge_positions(self) -> Cells:
        """Return the cells with all positions merged and jumps counted as ordinary errors."""
        return collect_cells(pool_positions(self.index), np.maximum(self.own, self.jump), self.count)


def collect_cells(index: IntArray, own: FloatArray, count: IntArray | None = None) -> Cells:
    """Return the cells of elements with these errors."""
    unique, inverse = np.unique(index.ravel(), return_inverse=True)
    worst = np.zeros(len(unique))
    np.maximum.at(worst, inverse.ravel(), own.ravel())
    numbers = np.bincount(inverse.ravel(), None if count is None else count.ravel(), len(unique)).astype(np.int64)
    return Cells(unique, worst, numbers, np.zeros(len(unique)), np.zeros(len(unique), dtype=np.int64))


def merge_cells(first: Cells, second: Cells) -> Cells:
    """Combine two sets of cells: take the larger errors, and add the counts."""
    if not first.index.size:
        return second
    index = np.union1d(first.index, second.index)
    own, jump = np.zeros(len(index)), np.zeros(len(index))
    count, jumps = np.zeros(len(index), dtype=np.int64), np.zeros(len(index), dtype=np.int64)
    for cells in (first, second):
        at = np.searchsorted(index, cells.index)
        own[at] = np.maximum(own[at], cells.own)
        jump[at] = np.maximum(jump[at], cells.jump)
        count[at] += cells.count
        jumps[at] += cells.jumps
    return Cells(index, own, count, jump, jumps)
