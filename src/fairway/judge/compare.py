"""Compare one output with another: structure first, then the places of NaN and infinities, then numbers.

There is no default tolerance: errors are measured here and judged later by the yardstick. Outputs are compared in
chunks, because intermediate results take many times the memory of the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fairway.diagnostics import Code
from fairway.judge.cells import (
    BUCKET_COUNT,
    Array,
    BoolArray,
    Cells,
    FloatArray,
    count_positions,
    find_positions,
    index_cells,
)
from fairway.judge.yardstick import SHARE_OF_TYPICAL, Yardstick, get_eps

CHUNK_ELEMENTS = 1 << 20
"""Elements that are compared together."""

JUMP_RATIO = 1000.0
"""PyTorch's error is a jump if it is this many times the common error of its sample and the last place of its value."""

COMMON_ERROR_SHARE = 0.9
"""The common error is at least as large as the errors of this share of the elements."""

LOST_SHARE = 0.5
"""A position's numbers are lost if PyTorch's errors there sum to more than this share of the values."""

RELEVANT_NOISE_SHARE = 1e-2
"""Noise at edge values is reported if it is larger than this share of the largest value."""


@dataclass(frozen=True)
class Difference:
    """A difference that is wrong by any yardstick."""

    code: str
    text: str


@dataclass(frozen=True)
class Measurement:
    """The distances of PyTorch and of the candidate from the truth, by cell, for one output at one sample."""

    cells: Cells
    theirs: FloatArray
    """The candidate's largest error in each cell."""
    worst: tuple[int, ...]
    """Index of the candidate's worst element, relative to its magnitude."""
    values: tuple[float, float, float]
    """Truth, PyTorch and candidate at that element."""
    elements: int
    largest: float = 0.0
    """Magnitude of the largest true value."""
    nans: int = 0
    """Elements that are NaN in PyTorch."""
    lost: float = 0.0
    """PyTorch's largest error at a position where its errors are as large as the values, or 0."""

    @property
    def own_error(self) -> FloatArray:
        """PyTorch's largest error in each cell."""
        return np.maximum(self.cells.own, self.cells.jump)


def is_lost(measurement: Measurement, flavor: str) -> bool:
    """Return whether PyTorch's errors at some position are as large as the values there, so that these mean nothing.

    Edge values leave noise where the result is 0. They count only if the errors matter next to the largest value.
    """
    return (
        measurement.lost > (0.0 if flavor == "normal" else RELEVANT_NOISE_SHARE * measurement.largest)
        and measurement.lost > 0
    )


def compare_structure(name: str, ours: Array, theirs: Array) -> Difference | None:
    """Return a difference in shape or dtype."""
    if ours.shape != theirs.shape:
        return Difference(Code.SHAPE_DIFFERS, f"{name}: PyTorch {list(ours.shape)}, file {list(theirs.shape)}")
    if ours.dtype != theirs.dtype:
        return Difference(Code.OUTPUTS_DIFFER, f"{name}: PyTorch {ours.dtype}, file {theirs.dtype}")
    return None


class _OutputTotals:
    """Totals over the chunks of one output, by cell or by position."""

    def __init__(self, shape: Sequence[int], by_row: bool, dtype: str) -> None:
        self._shape, self._by_row, self._dtype = shape, by_row, dtype
        positions = count_positions(shape)
        cells = positions * BUCKET_COUNT
        self.own, self.theirs, self.jump = np.zeros(cells), np.zeros(cells), np.zeros(cells)
        self.count, self.jumps = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.int64)
        self.used = np.zeros(cells, dtype=np.bool_)
        self.errors, self.values, self.highest = np.zeros(positions), np.zeros(positions), np.zeros(positions)
        self.wrong = self.first_wrong = self.at = self.nans = 0
        self.scaled, self.largest = -1.0, 0.0

    def add_chunk(self, start: int, truth: FloatArray, own: FloatArray, theirs: FloatArray) -> None:
        """Add the elements from `start` on: the truth, PyTorch's and the candidate's."""
        finite = np.isfinite(own)
        truth = np.where(finite & ~np.isfinite(truth), own, truth)
        known = np.isfinite(truth)
        rounded = _round_to_dtype(truth, self._dtype)
        same = (
            _is_same_kind(own, theirs)
            | (known & ~finite & np.isfinite(theirs))
            | (np.isinf(theirs) & (theirs == rounded))
        )
        if not same.all():
            self.first_wrong = self.first_wrong if self.wrong else start + int(np.argmin(same))
            self.wrong += int((~same).sum())
        self.nans += int(np.isnan(own).sum())
        use = known & np.isfinite(theirs)
        if self.wrong or not use.any():
            return
        where = find_positions(self._shape, start, start + truth.size)[use]
        magnitudes = np.maximum(np.abs(truth), _compute_row_scale(own, self._shape)) if self._by_row else truth
        is_learned = finite[use]
        truth, own, theirs, index = truth[use], own[use], theirs[use], index_cells(magnitudes[use], where)
        own_error = np.where(is_learned, np.abs(np.where(is_learned, own, 0.0) - truth), 0.0)
        jumped = _find_jumps(own_error, truth, self._dtype)
        their_error = np.abs(theirs - truth)
        their_error[jumped] = np.minimum(their_error, np.abs(theirs - own))[jumped]  # either decision is right
        self.used[index] = True
        np.maximum.at(self.own, index, np.where(jumped, 0.0, own_error))
        np.maximum.at(self.theirs, index, their_error)
        self.count += np.bincount(index[is_learned], minlength=len(self.count))
        if jumped.any():
            np.maximum.at(self.jump, index[jumped], own_error[jumped])
            self.jumps += np.bincount(index[jumped], minlength=len(self.jumps))
        self.errors += np.bincount(where, own_error, len(self.errors))
        self.values += np.bincount(where, np.abs(truth), len(self.values))
        np.maximum.at(self.highest, where, own_error)
        scaled = their_error / (np.abs(truth) + own_error + 1e-300)
        worst = int(np.argmax(scaled))
        if scaled[worst] > self.scaled:
            self.scaled, self.at = float(scaled[worst]), start + int(np.flatnonzero(use)[worst])
        self.largest = max(self.largest, float(np.abs(truth).max()))


def measure_errors(
    name: str, truth: Array, ours: Array, theirs: Array, by_row: bool = False, dtype: str = "float32"
) -> Difference | Measurement:
    """Return the distances of both from the truth, or a difference if NaN or infinities are in other places.

    If PyTorch overflows and float64 does not, the candidate may give PyTorch's answer or is measured against the truth.
    In the opposite case PyTorch's answer is the truth. `by_row` is for stated tolerances: an element then counts as no
    smaller than a share of the typical magnitude in its row.
    """
    sums = _OutputTotals(truth.shape, by_row, dtype)
    for start, stop in _split_into_chunks(truth.shape, truth.size):
        true, own, cand = (_to_float64(array.reshape(-1)[start:stop]) for array in (truth, ours, theirs))
        sums.add_chunk(start, true, own, cand)
    if sums.wrong:
        place = _unravel_place(sums.first_wrong, truth.shape)
        values = f"PyTorch {float(ours[place])}, file {float(theirs[place])}"
        text = f"{name}{list(place)}: {values}; {sums.wrong} of {truth.size} differ"
        return Difference(Code.NONFINITE_DIFFERS, text)
    index = np.flatnonzero(sums.used)
    cells = Cells(index, sums.own[index], sums.count[index], sums.jump[index], sums.jumps[index])
    lost = (sums.errors > LOST_SHARE * sums.values) & (sums.errors > 0)
    place = _unravel_place(sums.at, truth.shape) if index.size else ()
    return Measurement(
        cells,
        sums.theirs[index],
        place,
        (float(truth[place]), float(ours[place]), float(theirs[place])) if index.size else (0.0, 0.0, 0.0),
        int(truth.size),
        sums.largest,
        sums.nans,
        float(sums.highest[lost].max(initial=0.0)),
    )


def _split_into_chunks(shape: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Yield the start and stop of each chunk. A chunk consists of complete rows if a row fits."""
    row = shape[-1] if shape and 0 < shape[-1] <= CHUNK_ELEMENTS else 1
    step = CHUNK_ELEMENTS // row * row
    for start in range(0, size, step):
        yield start, min(start + step, size)


def _unravel_place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()


def _find_jumps(error: FloatArray, truth: FloatArray, dtype: str) -> BoolArray:
    """Mark the errors that are far larger than the others: there PyTorch decided differently from float64."""
    sizes = np.abs(truth)
    nonzero = sizes[sizes > 0]
    typical = float(np.median(nonzero)) if nonzero.size else 0.0
    common = float(
        np.partition(error, int(COMMON_ERROR_SHARE * (error.size - 1)))[int(COMMON_ERROR_SHARE * (error.size - 1))]
    )
    stands_out: BoolArray = error > JUMP_RATIO * np.maximum(common, get_eps(dtype) * np.maximum(sizes, typical))
    return stands_out


def _compute_row_scale(own: FloatArray, shape: Sequence[int]) -> FloatArray:
    """Return for each element a share of the typical magnitude in its row."""
    row = shape[-1] if shape and own.size % shape[-1] == 0 else own.size
    sizes = np.where(np.isfinite(own), np.abs(own), 0.0).reshape(-1, row)
    return np.repeat(SHARE_OF_TYPICAL * np.median(sizes, axis=1), row)


def count_beyond(truth: Array, values: Array, yardstick: Yardstick) -> int:
    """Count the elements that are further from the truth than the yardstick allows."""
    beyond = 0
    for start, stop in _split_into_chunks(truth.shape, truth.size):
        true, value = (_to_float64(array.reshape(-1)[start:stop]) for array in (truth, values))
        use = np.isfinite(true) & np.isfinite(value)
        index = index_cells(true[use], find_positions(truth.shape, start, stop)[use])
        beyond += int((np.abs(value[use] - true[use]) > yardstick.allow(index)).sum())
    return beyond


def find_worst(truth: Array, theirs: Array, yardstick: Yardstick) -> tuple[int, ...]:
    """Return the place of the element with the largest error in units of the allowed one."""
    worst, at = -1.0, 0
    for start, stop in _split_into_chunks(truth.shape, truth.size):
        true, value = (_to_float64(array.reshape(-1)[start:stop]) for array in (truth, theirs))
        use = np.isfinite(true) & np.isfinite(value)
        if not use.any():
            continue
        index = index_cells(true[use], find_positions(truth.shape, start, stop)[use])
        ratios = np.abs(value[use] - true[use]) / yardstick.allow(index)
        if ratios.max() > worst:
            worst, at = float(ratios.max()), start + int(np.flatnonzero(use)[np.argmax(ratios)])
    return _unravel_place(at, truth.shape)


def _round_to_dtype(truth: FloatArray, dtype: str) -> FloatArray:
    """Return the truth with values beyond the range of the dtype made infinite."""
    largest = {"float16": 65520.0, "float64": np.inf}.get(dtype, 2.0**128 * (1 - 2.0**-25))
    return np.where(np.abs(truth) >= largest, np.copysign(np.inf, truth), truth)


def _is_same_kind(a: FloatArray, b: FloatArray) -> BoolArray:
    """Mark the elements that are both finite, both NaN, or the same infinity."""
    finite = np.isfinite(a) & np.isfinite(b)
    both_nan = np.isnan(a) & np.isnan(b)
    same: BoolArray = finite | both_nan | (np.isinf(a) & (a == b))
    return same


def _to_float64(values: Array) -> FloatArray:
    """Return the values as float64. Complex numbers are already pairs of real numbers."""
    return values.astype(np.float64)
