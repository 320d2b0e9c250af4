"""A ratio of two paired series, with an interval that also holds if neighboring rounds are alike.

The rounds are cut into blocks in the order of time. The lower quartile of each arm in a block is taken, since load on
the machine can only make calls longer. The blocks' log-ratios are resampled, so that a disturbance of several rounds
stays together. The blocks are few, and the bootstrap takes their spread as known, so its interval is widened by the
ratio of Student's quantile to the normal one.

Rounds do not show what stays the same in all of them: the memory placement of an arm makes it a little faster or slower
than a copy of itself for its whole life, and a short call more so. The interval also allows for that, as measured in
benchmarks/bench.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MIN_BLOCKS, MAX_BLOCKS = 5, 15
"""With fewer blocks there is no interval."""

MIN_ROUNDS_PER_BLOCK = 3
"""If there are enough rounds."""

CONFIDENCE_LEVEL = 0.99
"""At 0.95, a twentieth of all comparisons of a file with itself would show a difference."""

LOWER_QUARTILE, MIN_QUARTILE_DURATIONS = 0.25, 12
"""The quantile taken from a block, and the number of durations it needs; with fewer it is the median."""

STUDENT_QUANTILES = (4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977)
"""Student's quantile for this level, by the number of blocks from the fewest to the most."""
NORMAL_QUANTILE = 2.576

PLACEMENT_SHARE, PLACEMENT_SECONDS = 0.015, 0.5e-6
"""The difference between two copies due to memory placement, at this level: a share of a call, plus seconds."""

BOOTSTRAP_DRAWS = 4000

NO_DIFFERENCE_TEXT = "no difference shown"


@dataclass(frozen=True)
class Ratio:
    """The speed relative to another arm, above 1 if faster; `low` and `high` bound it."""

    value: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        """True if the interval excludes 1."""
        return self.low > 1 or self.high < 1

    @property
    def is_faster(self) -> bool:
        return self.low > 1

    @property
    def is_slower(self) -> bool:
        return self.high < 1

    def as_dict(self) -> dict[str, object]:
        """Return the ratio for JSON, which has no infinity: an unknown end is null."""
        high = self.high if math.isfinite(self.high) else None
        return {"value": self.value, "low": self.low, "high": high, "differs": self.differs, "text": str(self)}

    def __str__(self) -> str:
        return (
            f"{_format_number(self.value)}x ({_format_number(self.low)}..{_format_number(self.high)})"
            if self.differs
            else NO_DIFFERENCE_TEXT
        )


def _format_number(number: float) -> str:
    """Format with three digits: 1.32, 13.2, 132."""
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f}"


def compare_durations(above: Sequence[Sequence[float]], below: Sequence[Sequence[float]], seed: int = 0) -> Ratio:
    """Return above / below, from the durations of each round. With fewer than five rounds the interval is infinite."""
    if len(above) != len(below) or not above:
        raise ValueError(f"{len(above)} rounds against {len(below)}; expected as many of both, at least one")
    count = min(len(above), max(MIN_BLOCKS, min(MAX_BLOCKS, len(above) // MIN_ROUNDS_PER_BLOCK)))
    parts = np.array_split(np.arange(len(above)), count)
    pooled = [[np.log(np.concatenate([rounds[i] for i in part])) for part in parts] for rounds in (above, below)]
    share = LOWER_QUARTILE if min(map(len, (*pooled[0], *pooled[1]))) >= MIN_QUARTILE_DURATIONS else 0.5
    # This method gives the same share of durations below the result for any number of them; a fast arm has more.
    quantiles = [
        np.array([np.quantile(durations, share, method="weibull") for durations in blocks_of_arm])
        for blocks_of_arm in pooled
    ]
    blocks = quantiles[0] - quantiles[1]
    mean = float(blocks.mean())
    if len(blocks) < MIN_BLOCKS:
        return Ratio(math.exp(mean), 0.0, math.inf)
    below_by, above_by = _bootstrap_interval(blocks, seed)
    shortest = math.exp(min(np.median(quantiles[0]), np.median(quantiles[1])))
    placement = math.hypot(PLACEMENT_SHARE, PLACEMENT_SECONDS / shortest)
    low, high = mean - math.hypot(below_by, placement), mean + math.hypot(above_by, placement)
    return Ratio(math.exp(mean), math.exp(low), math.exp(high))


def _bootstrap_interval(blocks: npt.NDArray[np.float64], seed: int) -> tuple[float, float]:
    """Return how far the interval reaches below and above the mean of the blocks."""
    count = len(blocks)
    middle = blocks.mean()
    means = blocks[np.random.default_rng(seed).integers(0, count, (BOOTSTRAP_DRAWS, count))].mean(axis=1)
    tail = (1 - CONFIDENCE_LEVEL) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    wider = STUDENT_QUANTILES[count - MIN_BLOCKS] / NORMAL_QUANTILE * math.sqrt(count / (count - 1))
    return float(wider * (middle - low)), float(wider * (high - middle))
