"""Decisions are counted: at how many elements whole numbers, bools and steps differ, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairway.judge.cells import Array
from fairway.judge.yardstick import FACTOR

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DecisionCounts:
    """Elements of whole numbers, bools or steps that differ, and how many may, with the sizes of the differences."""

    theirs: int
    size: float
    allowed: float
    allowed_size: float
    elements: int
    text: str = ""

    @property
    def ratio(self) -> float:
        """In units of what is allowed, whichever is worse of number and size."""
        return max(_share(self.theirs, self.allowed), _share(self.size, self.allowed_size))


def _share(value: float, allowed: float) -> float:
    return 0.0 if not value else float("inf") if not allowed else float(value / allowed)


def count_differences(
    name: str, ours: Array, theirs: Array, moved: Sequence[Array], far: Sequence[Array] = ()
) -> DecisionCounts:
    """Count where the file differs from PyTorch in whole numbers or bools.

    `moved` are PyTorch's answers in float64 and with its roundings moved: the file may differ at `FACTOR` times as
    many elements as one of them, and by `FACTOR` times as much. `far` are answers with the roundings moved `FACTOR`
    times as far, so the file may differ like one of those. What PyTorch answers itself is never too far off.
    """
    others = [other for other in moved if other.shape == ours.shape]
    further = [other for other in far if other.shape == ours.shape]
    wrong = ours != theirs
    strange = wrong.copy()
    for other in (*others, *further):
        strange &= other != theirs
    count = int(wrong.sum())
    text = ""
    if count:
        place = tuple(int(i) for i in np.argwhere(strange if strange.any() else wrong)[0])
        text = f"{name}{list(place)}: PyTorch {ours[place]}, file {theirs[place]}; {count} of {ours.size} differ"
    return DecisionCounts(
        theirs=count,
        size=_size(ours, theirs, strange),
        allowed=max(
            max((FACTOR * int((other != ours).sum()) for other in others), default=0.0),
            max((float((other != ours).sum()) for other in further), default=0.0),
        ),
        allowed_size=max(
            FACTOR * max((_size(ours, other) for other in others), default=0.0),
            max((_size(ours, other) for other in further), default=0.0),
        ),
        elements=ours.size,
        text=text,
    )


def _size(one: Array, other: Array, where: Bools | None = None) -> float:
    """Return the largest difference."""
    apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float((apart if where is None else apart[where]).max(initial=0.0))
