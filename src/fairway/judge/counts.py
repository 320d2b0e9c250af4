"""Count decisions: the elements at which whole numbers, bools and steps differ, and the sizes of the differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairway.judge.cells import Array, BoolArray
from fairway.judge.yardstick import ERROR_FACTOR


@dataclass(frozen=True)
class DecisionCounts:
    """The number of elements that differ and the number that may, with the sizes of the differences."""

    theirs: int
    size: float
    allowed: float
    allowed_size: float
    elements: int
    text: str = ""

    @property
    def ratio(self) -> float:
        """The worse of number and size, in units of what is allowed."""
        return max(_compute_share(self.theirs, self.allowed), _compute_share(self.size, self.allowed_size))


def _compute_share(value: float, allowed: float) -> float:
    return 0.0 if not value else float("inf") if not allowed else float(value / allowed)


def count_differences(
    name: str, ours: Array, theirs: Array, moved: Sequence[Array], far: Sequence[Array] = ()
) -> DecisionCounts:
    """Count where the file differs from PyTorch in whole numbers or bools.

    `moved` are PyTorch's answers in float64 and with its roundings moved: the file may differ at `ERROR_FACTOR`
    times as many elements as one of them, and by `ERROR_FACTOR` times as much. `far` are answers with the roundings
    moved `ERROR_FACTOR` times as far, so the file may differ like one of those. An answer that PyTorch gives itself is
    never wrong.
    """
    near_answers = [other for other in moved if other.shape == ours.shape]
    far_answers = [other for other in far if other.shape == ours.shape]
    wrong = ours != theirs
    unexplained = wrong.copy()
    for other in (*near_answers, *far_answers):
        unexplained &= other != theirs
    count = int(wrong.sum())
    text = ""
    if count:
        place = tuple(int(i) for i in np.argwhere(unexplained if unexplained.any() else wrong)[0])
        text = f"{name}{list(place)}: PyTorch {ours[place]}, file {theirs[place]}; {count} of {ours.size} differ"
    return DecisionCounts(
        theirs=count,
        size=_find_largest_difference(ours, theirs, unexplained),
        allowed=max(
            max((ERROR_FACTOR * int((other != ours).sum()) for other in near_answers), default=0.0),
            max((float((other != ours).sum()) for other in far_answers), default=0.0),
        ),
        allowed_size=max(
            ERROR_FACTOR * max((_find_largest_difference(ours, other) for other in near_answers), default=0.0),
            max((_find_largest_difference(ours, other) for other in far_answers), default=0.0),
        ),
        elements=ours.size,
        text=text,
    )


def _find_largest_difference(first: Array, second: Array, where: BoolArray | None = None) -> float:
    """Return the largest difference, in the marked elements if `where` is given."""
    apart = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return float((apart if where is None else apart[where]).max(initial=0.0))
