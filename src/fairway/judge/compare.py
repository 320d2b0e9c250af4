"""One output against another: structure first, then the places of NaN and infinities, then numbers.

No default tolerance is here: numbers are measured, and judged later by the yardstick. Comparing goes piece by piece,
since the numbers worked out on the way would be many times the outputs themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairway.judge.cells import BUCKETS, Array, Cells, Real, count_positions, index_cells, position
from fairway.judge.yardstick import SHARE_OF_TYPICAL, Yardstick, eps

PIECE = 1 << 20
"""Elements that are compared together."""

JUMP = 1000.0
"""An own error is a jump if it is so many times the common error of its sample and the last place of its value."""

COMMON = 0.9
"""Share of the elements whose errors are common."""

LOST_SHARE = 0.5
"""A position's numbers are lost if PyTorch's errors there sum up to this share of the values."""

SHARE_THAT_MATTERS = 1e-2
"""Share of the largest value from which noise at edge values is worth a word."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Difference:
    """A difference that needs no yardstick."""

    code: str
    text: str


@dataclass(frozen=True)
class Measured:
    """One output at one sample: PyTorch's and the candidate's distance from the truth, by cell."""

    cells: Cells
    theirs: Real
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
    """The largest own error at a position whose values PyTorch misses by their own size; 0 if there is none."""

    @property
    def own(self) -> Real:
        """PyTorch's largest error in each cell."""
        return np.maximum(self.cells.own, self.cells.jump)


def is_lost(got: Measured, kind: str) -> bool:
    """Whether PyTorch's numbers mean nothing at some position: they are off by the size of the values.

    Edge values leave noise where the result is 0; there the errors must matter beside the output's largest value.
    """
    return got.lost > (0.0 if kind == "normal" else SHARE_THAT_MATTERS * got.largest) and got.lost > 0


def compare_structure(name: str, ours: Array, theirs: Array) -> Difference | None:
    if ours.shape != theirs.shape:
        return Difference("FW403", f"{name}: PyTorch {list(ours.shape)}, file {list(theirs.shape)}")
    if ours.dtype != theirs.dtype:
        return Difference("FW404", f"{name}: PyTorch {ours.dtype}, file {theirs.dtype}")
    return None


class _Sums:
    """What the pieces of one output add up to, by cell or by position."""

    def __init__(self, positions: int) -> None:
        cells = positions * BUCKETS
        self.own, self.theirs, self.jump = np.zeros(cells), np.zeros(cells), np.zeros(cells)
        self.count, self.jumps = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.int64)
        self.used = np.zeros(cells, dtype=np.bool_)
        self.errors, self.values, self.highest = np.zeros(positions), np.zeros(positions), np.zeros(positions)
        self.wrong = self.first_wrong = self.at = self.nans = 0
        self.scaled, self.largest = -1.0, 0.0


def measure(
    name: str, truth: Array, ours: Array, theirs: Array, by_row: bool = False, dtype: str = "float32"
) -> Difference | Measured:
    """Return the distances of both from the truth; a difference if NaN or infinities are in other places.

    If PyTorch overflows and float64 does not, the candidate gives PyTorch's answer or is measured against the truth.
    If it is the other way round, PyTorch's answer is the truth. `by_row` is for stated tolerances: an element then
    counts as no smaller than a share of what is typical in its row.
    """
    sums = _Sums(count_positions(truth.shape))
    for start, stop in _pieces(truth.shape, truth.size):
        true, own, cand = (_real(array.reshape(-1)[start:stop]) for array in (truth, ours, theirs))
        _add(sums, truth.shape, start, true, own, cand, by_row=by_row, dtype=dtype)
    if sums.wrong:
        place = _place(sums.first_wrong, truth.shape)
        values = f"PyTorch {float(ours[place])}, file {float(theirs[place])}"
        text = f"{name}{list(place)}: {values}; {sums.wrong} of {truth.size} differ"
        return Difference("FW405", text)
    index = np.flatnonzero(sums.used)
    cells = Cells(index, sums.own[index], sums.count[index], sums.jump[index], sums.jumps[index])
    lost = (sums.errors > LOST_SHARE * sums.values) & (sums.errors > 0)
    place = _place(sums.at, truth.shape) if index.size else ()
    return Measured(
        cells,
        sums.theirs[index],
        place,
        (float(truth[place]), float(ours[place]), float(theirs[place])) if index.size else (0.0, 0.0, 0.0),
        int(truth.size),
        sums.largest,
        sums.nans,
        float(sums.highest[lost].max(initial=0.0)),
    )


def _pieces(shape: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Whole rows as long as they fit."""
    row = shape[-1] if shape and 0 < shape[-1] <= PIECE else 1
    step = PIECE // row * row
    for start in range(0, size, step):
        yield start, min(start + step, size)


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()


def _add(
    sums: _Sums, shape: Sequence[int], start: int, truth: Real, own: Real, cand: Real, by_row: bool, dtype: str
) -> None:
    finite = np.isfinite(own)
    truth = np.where(finite & ~np.isfinite(truth), own, truth)
    known = np.isfinite(truth)
    rounded = _rounded(truth, dtype)
    same = _same_kind(own, cand) | (known & ~finite & np.isfinite(cand)) | (np.isinf(cand) & (cand == rounded))
    if not same.all():
        sums.first_wrong = sums.first_wrong if sums.wrong else start + int(np.argmin(same))
        sums.wrong += int((~same).sum())
    sums.nans += int(np.isnan(own).sum())
    use = known & np.isfinite(cand)
    if sums.wrong or not use.any():
        return
    where = position(shape, start, start + truth.size)[use]
    magnitudes = np.maximum(np.abs(truth), _row_scale(own, shape)) if by_row else truth
    learnt = finite[use]
    truth, own, cand, index = truth[use], own[use], cand[use], index_cells(magnitudes[use], where)
    own_error = np.where(learnt, np.abs(np.where(learnt, own, 0.0) - truth), 0.0)
    jumped = _is_jump(own_error, truth, dtype)
    their_error = np.abs(cand - truth)
    their_error[jumped] = np.minimum(their_error, np.abs(cand - own))[jumped]  # either decision will do
    sums.used[index] = True
    np.maximum.at(sums.own, index, np.where(jumped, 0.0, own_error))
    np.maximum.at(sums.theirs, index, their_error)
    sums.count += np.bincount(index[learnt], minlength=len(sums.count))
    if jumped.any():
        np.maximum.at(sums.jump, index[jumped], own_error[jumped])
        sums.jumps += np.bincount(index[jumped], minlength=len(sums.jumps))
    sums.errors += np.bincount(where, own_error, len(sums.errors))
    sums.values += np.bincount(where, np.abs(truth), len(sums.values))
    np.maximum.at(sums.highest, where, own_error)
    scaled = their_error / (np.abs(truth) + own_error + 1e-300)
    worst = int(np.argmax(scaled))
    if scaled[worst] > sums.scaled:
        sums.scaled, sums.at = float(scaled[worst]), start + int(np.flatnonzero(use)[worst])
    sums.largest = max(sums.largest, float(np.abs(truth).max()))


def _is_jump(error: Real, truth: Real, dtype: str) -> Bools:
    """Errors that stand out by far: PyTorch decided differently from float64 there."""
    sizes = np.abs(truth)
    nonzero = sizes[sizes > 0]
    typical = float(np.median(nonzero)) if nonzero.size else 0.0
    common = float(np.partition(error, int(COMMON * (error.size - 1)))[int(COMMON * (error.size - 1))])
    stands_out: Bools = error > JUMP * np.maximum(common, eps(dtype) * np.maximum(sizes, typical))
    return stands_out


def _row_scale(own: Real, shape: Sequence[int]) -> Real:
    """By element: a share of the typical magnitude in its row."""
    row = shape[-1] if shape and own.size % shape[-1] == 0 else own.size
    sizes = np.where(np.isfinite(own), np.abs(own), 0.0).reshape(-1, row)
    return np.repeat(SHARE_OF_TYPICAL * np.median(sizes, axis=1), row)


def count_beyond(truth: Array, values: Array, yardstick: Yardstick) -> int:
    """Count the elements that are further from the truth than the yardstick allows."""
    beyond = 0
    for start, stop in _pieces(truth.shape, truth.size):
        true, value = (_real(array.reshape(-1)[start:stop]) for array in (truth, values))
        use = np.isfinite(true) & np.isfinite(value)
        index = index_cells(true[use], position(truth.shape, start, stop)[use])
        beyond += int((np.abs(value[use] - true[use]) > yardstick.allow(index)).sum())
    return beyond


def find_worst(truth: Array, theirs: Array, yardstick: Yardstick) -> tuple[int, ...]:
    """Return the place of the element that is furthest off, in units of what is allowed."""
    worst, at = -1.0, 0
    for start, stop in _pieces(truth.shape, truth.size):
        true, value = (_real(array.reshape(-1)[start:stop]) for array in (truth, theirs))
        use = np.isfinite(true) & np.isfinite(value)
        if not use.any():
            continue
        index = index_cells(true[use], position(truth.shape, start, stop)[use])
        ratios = np.abs(value[use] - true[use]) / yardstick.allow(index)
        if ratios.max() > worst:
            worst, at = float(ratios.max()), start + int(np.flatnonzero(use)[np.argmax(ratios)])
    return _place(at, truth.shape)


def _rounded(truth: Real, dtype: str) -> Real:
    """The truth as the dtype holds it: infinite beyond its range."""
    largest = {"float16": 65520.0, "float64": np.inf}.get(dtype, 2.0**128 * (1 - 2.0**-25))
    return np.where(np.abs(truth) >= largest, np.copysign(np.inf, truth), truth)


def _same_kind(a: Real, b: Real) -> Bools:
    """Both finite, both NaN, or the same infinity."""
    finite = np.isfinite(a) & np.isfinite(b)
    both_nan = np.isnan(a) & np.isnan(b)
    same: Bools = finite | both_nan | (np.isinf(a) & (a == b))
    return same


def _real(values: Array) -> Real:
    """As float64; complex numbers as pairs of reals would change the shape, so they are compared by parts before."""
    return values.astype(np.float64)
