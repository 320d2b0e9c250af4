"""Counts of samples as text. Samples that are right only by an excuse are counted separately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence


def count_samples(outcomes: Sequence[tuple[bool, str]], noun: str = " samples right") -> str:
    """Return how many samples are right, from whether each is and by which excuse.

    For example: "61 of 67 samples right, 6 right by an excuse (order of equal elements 4, order of sums 2)".
    """
    excuses = [excuse for right, excuse in outcomes if right and excuse]
    counted = f"{sum(right for right, _ in outcomes) - len(excuses)} of {len(outcomes)}{noun}"
    return f"{counted}, {len(excuses)} right by an excuse ({count_reasons(excuses)})" if excuses else counted


def count_reasons(excuses: Iterable[str]) -> str:
    """Return each reason with its number, the most frequent first."""
    return ", ".join(f"{reason} {count}" for reason, count in Counter(excuses).most_common())
