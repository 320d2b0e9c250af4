"""One output against another: structure first, then where NaN and infinities stand, then numbers.

No default tolerance lives here: numbers are measured, and judged later by the yardstick.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairway.evidence.yardstick import BUCKETS, Array, Real, bucket, worst_by_bucket


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


def measure(name: str, truth: Real, ours: Array, theirs: Array) -> Difference | Measured:
    """The distances of both from the truth; a difference where NaN or infinities stand elsewhere.

    Where PyTorch overflows and float64 does not, the candidate may give either.
    """
    own, cand = _real(ours), _real(theirs)
    decided = np.isfinite(own) | ~np.isfinite(truth)
    wrong = decided & ~_same_kind(own, cand)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        count = int(wrong.sum())
        return Difference(
            "FW405", f"{name}{list(place)}: PyTorch {own[place]}, file {cand[place]}; {count} of {wrong.size} differ"
        )
    use = np.isfinite(truth) & np.isfinite(own) & np.isfinite(cand)
    if not use.any():
        return Measured(np.zeros(BUCKETS), np.zeros(BUCKETS), (), (0.0, 0.0, 0.0), int(use.size))
    buckets = bucket(truth[use])
    own_error, their_error = np.abs(own[use] - truth[use]), np.abs(cand[use] - truth[use])
    scaled = their_error / (np.abs(truth[use]) + np.abs(own_error) + 1e-30)
    flat = int(np.flatnonzero(use.ravel())[int(np.argmax(scaled))])
    place = tuple(int(i) for i in np.unravel_index(flat, truth.shape))
    return Measured(
        worst_by_bucket(own_error, buckets),
        worst_by_bucket(their_error, buckets),
        place,
        (float(truth[place]), float(own[place]), float(cand[place])),
        int(use.size),
        float(np.abs(truth[use]).max()),
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
