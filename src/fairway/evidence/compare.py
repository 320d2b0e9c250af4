"""One output against another: structure first, then where NaN and infinities stand, then numbers.

No default tolerance lives here: numbers are measured, and judged later by the yardstick.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fairway.evidence.yardstick import BUCKETS, Array, Real, bucket, worst_by_bucket

PIECE = 1 << 20
"""Elements that are looked at together."""


@dataclass(frozen=True)
class Difference:
    """A difference that needs no yardstick."""

    code: str
    text: str


@dataclass(frozen=True)
class Measured:
    """One output at one sample: PyTorch's and the candidate's distance from the truth, by magnitude."""

    own: Real
    theirs: Real
    worst: tuple[int, ...]
    """Index of the candidate's worst element, relative to its magnitude."""
    values: tuple[float, float, float]
    """Truth, PyTorch and candidate at that element."""
    elements: int
    largest: float = 0.0
    """Magnitude of the largest true value."""
    undecided: int = 0
    """Elements on which PyTorch itself changes its mind when its inputs are moved by a rounding error."""


def compare_structure(name: str, ours: Array, theirs: Array) -> Difference | None:
    if ours.shape != theirs.shape:
        return Difference("FW403", f"{name}: PyTorch {list(ours.shape)}, file {list(theirs.shape)}")
    if ours.dtype != theirs.dtype:
        return Difference("FW404", f"{name}: PyTorch {ours.dtype}, file {theirs.dtype}")
    return None


def compare_exact(name: str, ours: Array, theirs: Array, allowed: list[Array]) -> tuple[Difference | None, int]:
    """Whole numbers and bools match exactly. `allowed` are answers PyTorch gave when nudged by a rounding error."""
    wrong = ours != theirs
    tied = np.zeros_like(wrong)
    for other in allowed:
        if other.shape == theirs.shape:
            tied |= wrong & (other != ours)
    left = wrong & ~tied
    if not left.any():
        return None, int(wrong.sum())
    place = tuple(int(i) for i in np.argwhere(left)[0])
    text = f"{name}{list(place)}: PyTorch {ours[place]}, file {theirs[place]}; {int(left.sum())} of {left.size} differ"
    return Difference("FW401", text), int((wrong & tied).sum())


def measure(name: str, truth: Array, ours: Array, theirs: Array) -> Difference | Measured:
    """The distances of both from the truth; a difference where NaN or infinities stand elsewhere.

    Where PyTorch overflows and float64 does not, the candidate may give either. Goes piece by piece, since the numbers
    worked out on the way would be many times the outputs themselves.
    """
    parts = [array.reshape(-1) for array in (truth, ours, theirs)]
    starts = range(0, truth.size, PIECE)
    pieces = [_measure(start, *(_real(part[start : start + PIECE]) for part in parts)) for start in starts]
    wrong = sum(piece.wrong for piece in pieces)
    if wrong:
        place = _place(next(piece.first_wrong for piece in pieces if piece.wrong), truth.shape)
        own, cand = float(ours[place]), float(theirs[place])
        return Difference("FW405", f"{name}{list(place)}: PyTorch {own}, file {cand}; {wrong} of {truth.size} differ")
    used = [piece for piece in pieces if piece.used]
    if not used:
        return Measured(np.zeros(BUCKETS), np.zeros(BUCKETS), (), (0.0, 0.0, 0.0), int(truth.size))
    worst = max(used, key=lambda piece: piece.scaled)
    place = _place(worst.at, truth.shape)
    return Measured(
        np.max([piece.own for piece in used], axis=0),
        np.max([piece.theirs for piece in used], axis=0),
        place,
        (float(truth[place]), float(ours[place]), float(theirs[place])),
        int(truth.size),
        max(piece.largest for piece in used),
    )


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()


@dataclass(frozen=True)
class _Piece:
    """Some elements in a row: how many stand where they must not, or else their distances."""

    wrong: int = 0
    first_wrong: int = 0
    used: bool = False
    own: Real = field(default_factory=lambda: np.zeros(BUCKETS))
    theirs: Real = field(default_factory=lambda: np.zeros(BUCKETS))
    at: int = 0
    scaled: float = 0.0
    largest: float = 0.0


def _measure(start: int, truth: Real, own: Real, cand: Real) -> _Piece:
    decided = np.isfinite(own) | ~np.isfinite(truth)
    wrong = decided & ~_same_kind(own, cand)
    if wrong.any():
        return _Piece(int(wrong.sum()), start + int(np.argmax(wrong)))
    use = np.isfinite(truth) & np.isfinite(own) & np.isfinite(cand)
    if not use.any():
        return _Piece()
    buckets = bucket(truth[use])
    own_error, their_error = np.abs(own[use] - truth[use]), np.abs(cand[use] - truth[use])
    scaled = their_error / (np.abs(truth[use]) + np.abs(own_error) + 1e-30)
    worst = int(np.argmax(scaled))
    return _Piece(
        used=True,
        own=worst_by_bucket(own_error, buckets),
        theirs=worst_by_bucket(their_error, buckets),
        at=start + int(np.flatnonzero(use)[worst]),
        scaled=float(scaled[worst]),
        largest=float(np.abs(truth[use]).max()),
    )


def _same_kind(a: Real, b: Real) -> npt.NDArray[np.bool_]:
    """Both finite, both NaN, or the same infinity."""
    finite = np.isfinite(a) & np.isfinite(b)
    both_nan = np.isnan(a) & np.isnan(b)
    same: npt.NDArray[np.bool_] = finite | both_nan | (np.isinf(a) & (a == b))
    return same


def _real(values: Array) -> Real:
    """As float64; complex numbers as pairs of reals would change the shape, so they are compared by parts before."""
    return values.astype(np.float64)
