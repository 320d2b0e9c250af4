"""A ratio of two paired series, with an interval that also holds where neighbouring rounds resemble each other.

The rounds' log-ratios are cut into blocks in the order of time, and the blocks are what is drawn again: what lasts for
several rounds stays together. The blocks are few, so the bootstrap is studentised: it asks how many standard errors off
a mean of so few blocks can be, instead of taking their spread as known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FEWEST, MOST = 5, 15
"""Blocks. With fewer no interval can be told."""

LENGTH = 3
"""Rounds in a block at least, where there are enough of them."""

LEVEL = 0.99
"""Of the interval. At 0.95, a twentieth of all comparisons of a thing with itself would show a difference."""

DRAWS = 4000

NOTHING = "no difference shown"


@dataclass(frozen=True)
class Ratio:
    """How many times faster; `low` and `high` bound it."""

    value: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low > 1 or self.high < 1

    @property
    def faster(self) -> bool:
        return self.low > 1

    @property
    def slower(self) -> bool:
        return self.high < 1

    def __str__(self) -> str:
        return f"{self.value:.2f}x ({self.low:.2f}..{self.high:.2f})" if self.differs else NOTHING


def ratio_of(above: Sequence[float], below: Sequence[float], seed: int = 0) -> Ratio:
    """above / below, round by round. With fewer than five rounds nothing can be excluded."""
    if len(above) != len(below) or not above:
        raise ValueError(f"{len(above)} rounds against {len(below)}: they are no pairs")
    logs = np.log(np.asarray(above, dtype=float)) - np.log(np.asarray(below, dtype=float))
    count = min(len(logs), max(FEWEST, min(MOST, len(logs) // LENGTH)))
    blocks = np.array([np.median(part) for part in np.array_split(logs, count)])
    middle = float(blocks.mean())
    if len(blocks) < FEWEST:
        return Ratio(math.exp(middle), 0.0, math.inf)
    low, high = _interval(blocks, seed)
    return Ratio(math.exp(middle), math.exp(low), math.exp(high))


def _interval(blocks: npt.NDArray[np.float64], seed: int) -> tuple[float, float]:
    count = len(blocks)
    middle, error = blocks.mean(), blocks.std(ddof=1) / math.sqrt(count)
    if error == 0:
        return float(middle), float(middle)
    drawn = blocks[np.random.default_rng(seed).integers(0, count, (DRAWS, count))]
    spread = drawn.std(axis=1, ddof=1) / math.sqrt(count)
    off = (drawn.mean(axis=1) - middle)[spread > 0] / spread[spread > 0]
    tail = (1 - LEVEL) / 2
    least, most = np.quantile(off, (tail, 1 - tail))
    return float(middle - most * error), float(middle - least * error)
