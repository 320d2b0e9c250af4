"""A ratio of two paired series, with an interval that also holds where neighbouring rounds resemble each other.

The rounds are cut into blocks in the order of time. Of each block the lower quartile of either arm is taken, since
what else a machine does can only make calls longer. The blocks' log-ratios are what is drawn again, so that what lasts
for several rounds stays together. The blocks are few, and the bootstrap takes their spread as known; so its interval is
widened as Student's is beside the normal one.

Rounds say nothing of what stays the same through all of them: where in memory an arm happens to lie makes it a little
faster or slower than its twin for as long as it lives, and a short call by more. That is granted besides, as measured
in benchmarks/bench.
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

QUARTILE, ENOUGH = 0.25, 12
"""What is taken of a block, and how many durations it takes to tell it; with fewer it is the median."""

STUDENT = (4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977)
"""Student's quantile for this level, by the number of blocks from the fewest to the most."""
NORMAL = 2.576

PLACEMENT, PLACEMENT_SECONDS = 0.015, 0.5e-6
"""How far apart two twins may be for reasons of place, at this level: a share of a call, and so many seconds of it."""

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

    def as_dict(self) -> dict[str, object]:
        """For JSON, which has no infinity: an end that could not be told is null."""
        high = self.high if math.isfinite(self.high) else None
        return {"value": self.value, "low": self.low, "high": high, "differs": self.differs, "text": str(self)}

    def __str__(self) -> str:
        return f"{_text(self.value)}x ({_text(self.low)}..{_text(self.high)})" if self.differs else NOTHING


def _text(number: float) -> str:
    """1.32, 13.2, 132."""
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f}"


def ratio_of(above: Sequence[Sequence[float]], below: Sequence[Sequence[float]], seed: int = 0) -> Ratio:
    """above / below, from the durations of each round. With fewer than five rounds nothing can be excluded."""
    if len(above) != len(below) or not above:
        raise ValueError(f"{len(above)} rounds against {len(below)}: they are no pairs")
    count = min(len(above), max(FEWEST, min(MOST, len(above) // LENGTH)))
    parts = np.array_split(np.arange(len(above)), count)
    pooled = [[np.log(np.concatenate([rounds[i] for i in part])) for part in parts] for rounds in (above, below)]
    share = QUARTILE if min(map(len, (*pooled[0], *pooled[1]))) >= ENOUGH else 0.5
    # By this method the share of durations below the answer is the same, however many there are: a fast arm has more.
    typical = [np.array([np.quantile(one, share, method="weibull") for one in some]) for some in pooled]
    blocks = typical[0] - typical[1]
    middle = float(blocks.mean())
    if len(blocks) < FEWEST:
        return Ratio(math.exp(middle), 0.0, math.inf)
    below_by, above_by = _interval(blocks, seed)
    shortest = math.exp(min(np.median(typical[0]), np.median(typical[1])))
    place = math.hypot(PLACEMENT, PLACEMENT_SECONDS / shortest)
    low, high = middle - math.hypot(below_by, place), middle + math.hypot(above_by, place)
    return Ratio(math.exp(middle), math.exp(low), math.exp(high))


def _interval(blocks: npt.NDArray[np.float64], seed: int) -> tuple[float, float]:
    """How far the interval reaches below and above the mean of the blocks."""
    count = len(blocks)
    middle = blocks.mean()
    means = blocks[np.random.default_rng(seed).integers(0, count, (DRAWS, count))].mean(axis=1)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    wider = STUDENT[count - FEWEST] / NORMAL * math.sqrt(count / (count - 1))
    return float(wider * (middle - low)), float(wider * (high - middle))
