"""The deep level: hypothesis looks for a failing sample and shrinks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from fairway.judge.judge import Judge
from fairway.judge.sample_result import SampleResult
from fairway.model.sample import Sample, sample

EXAMPLES = 500
MOST_SEARCHES = 3
"""Searches that shrink what they find. After these, all samples are taken before any is judged for good."""


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
    """The smallest failing sample that hypothesis finds, or None.

    The judge learns from each sample what error PyTorch itself makes, so the same sample may be wrong first and right
    later. hypothesis takes that for a flaky test. So each sample is judged once, and what was found is judged again by
    all that was learnt. If it is right by then, the search goes on.
    """
    subject = judge.subject
    sizes = st.fixed_dictionaries({d.name: _one_of(d.sizes) for d in subject.domain.dims})
    flavours = ("normal",) * len(subject.flavours) + tuple(subject.flavours)  # what is rare shows among these
    samples = st.builds(sample, sizes, _one_of(range(2**16)), _one_of(flavours))
    trials: dict[Sample, SampleResult] = {}
    wrong: set[Sample] = set()

    def is_wrong(one: Sample) -> bool:
        if one not in trials:
            tell(("sample", len(trials) + 1, EXAMPLES, str(one)))
            trials[one] = judge.take(one)
            wrong.update([one] if _is_beyond_excuse(judge, trials[one]) else [])
        return one in wrong

    for _ in range(MOST_SEARCHES):
        smallest = _search(samples, is_wrong)
        if smallest is None:
            return None
        if _is_beyond_excuse(judge, trials[smallest]):
            return smallest
        wrong = {one for one in wrong if _is_beyond_excuse(judge, trials[one])}
    _search(samples, lambda one: is_wrong(one) and False)  # take every sample, and judge them when all is learnt
    left = [one for one in wrong if _is_beyond_excuse(judge, trials[one])]
    return min(left, key=lambda one: tuple(one.sizes.values()), default=None)


def _is_beyond_excuse(judge: Judge, trial: SampleResult) -> bool:
    return trial.illegal is None and judge.ratio(trial) > 1 and not judge.excuse(trial)


def _search(samples: Any, is_wrong: Callable[[Sample], bool]) -> Sample | None:
    """The last sample, shrunk, for which `is_wrong` holds; None if hypothesis draws no such sample."""
    failing: list[Sample] = []

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
        if is_wrong(one):
            failing.append(one)
            raise _Wrong

    try:
        agrees()
    except (_Wrong, Flaky):
        return failing[-1] if failing else None
    return None
