"""The deep level: hypothesis looks for a failing sample and shrinks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fairway.evidence.judge import Judge
from fairway.evidence.lattice import Sample, sample

EXAMPLES = 150


class _Wrong(Exception):
    pass


def explore(judge: Judge, tell: Callable[[Any], None]) -> Sample | None:
    """The smallest failing sample that hypothesis finds, or None."""
    subject = judge.subject
    sizes = st.fixed_dictionaries({d.name: st.sampled_from(d.sizes) for d in subject.domain.dims})
    samples = st.builds(sample, sizes, st.integers(0, 2**16), st.sampled_from(subject.flavours))
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
