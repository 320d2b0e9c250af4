"""The deep level: hypothesis looks for a failing sample and shrinks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fairway.evidence.judge import Judge
from fairway.evidence.lattice import Sample, sample

EXAMPLES = 500


class _Wrong(Exception):
    pass


def _one_of(values: Sequence[Any]) -> Any:
    """One of these by a number of yes and no, the first where hypothesis shrinks.

    Its own numbers are drawn in part from the constants of modules that happen to be loaded, so that a second run in
    the same process draws others; yes and no are not.
    """
    bits = max(len(values) - 1, 1).bit_length()
    return st.lists(st.booleans(), min_size=bits, max_size=bits).map(
        lambda drawn: values[sum(bit << place for place, bit in enumerate(reversed(drawn))) % len(values)]
    )


def explore(judge: Judge, tell: Callable[[Any], None]) -> Sample | None:
    """The smallest failing sample that hypothesis finds, or None."""
    subject = judge.subject
    sizes = st.fixed_dictionaries({d.name: _one_of(d.sizes) for d in subject.domain.dims})
    flavours = ("normal",) * len(subject.flavours) + tuple(subject.flavours)  # what is rare shows among these
    samples = st.builds(sample, sizes, _one_of(range(2**16)), _one_of(flavours))
    failing: list[Sample] = []
    count = [0]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(samples)
    def agrees(one: Sample) -> None:
        count[0] += 1
        tell(("sample", count[0], EXAMPLES, str(one)))
        trial = judge.take(one)
        if trial.illegal is None and judge.ratio(trial) > 1 and not judge.excuse(trial):
            failing.append(one)
            raise _Wrong

    try:
        agrees()
    except _Wrong:
        return failing[-1]
    return None
