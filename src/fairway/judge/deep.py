"""The deep level: hypothesis searches for a failing sample and shrinks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from fairway.judge.judge import Judge
from fairway.judge.sample_result import SampleResult
from fairway.model.sample import Sample, make_sample
from fairway.record.progress import EventSink, ItemsCounted

MAX_EXAMPLES = 500
MAX_SEARCHES = 3
"""After this many searches, all samples are run before any of them is judged."""


class _WrongSampleError(Exception):
    """Tells hypothesis that the file is wrong at a sample."""


def _draw_one_of(values: Sequence[Any]) -> Any:
    """Draw one of the values by a list of bools. Hypothesis shrinks it to the first value.

    Hypothesis draws integers partly from the constants of loaded modules, so a second run in the same process would
    draw others. It draws bools without them.
    """
    bits = max(len(values) - 1, 1).bit_length()
    return st.lists(st.booleans(), min_size=bits, max_size=bits).map(
        lambda drawn: values[sum(bit << place for place, bit in enumerate(reversed(drawn))) % len(values)]
    )


def find_failing_sample(judge: Judge, on_event: EventSink) -> Sample | None:
    """Return the smallest failing sample that hypothesis finds, or None.

    The judge learns PyTorch's own error from each sample, so the same sample may be wrong first and right later.
    Hypothesis would call that a flaky test. So each sample is judged once, and the result of a search is judged again
    by everything learned. If it is right by then, the search goes on.
    """
    subject = judge.subject
    sizes = st.fixed_dictionaries({d.name: _draw_one_of(d.sizes) for d in subject.domain.dims})
    flavors = ("normal",) * len(subject.flavors) + tuple(subject.flavors)  # ordinary values are drawn half the time
    samples = st.builds(make_sample, sizes, _draw_one_of(range(2**16)), _draw_one_of(flavors))
    trials: dict[Sample, SampleResult] = {}
    wrong: set[Sample] = set()

    def is_wrong(sample: Sample) -> bool:
        if sample not in trials:
            on_event(ItemsCounted(len(trials) + 1, MAX_EXAMPLES, "samples", str(sample)))
            trials[sample] = judge.take(sample)
            wrong.update([sample] if _is_beyond_excuse(judge, trials[sample]) else [])
        return sample in wrong

    for _ in range(MAX_SEARCHES):
        smallest = _search(samples, is_wrong)
        if smallest is None:
            return None
        if _is_beyond_excuse(judge, trials[smallest]):
            return smallest
        wrong = {sample for sample in wrong if _is_beyond_excuse(judge, trials[sample])}
    _search(samples, lambda sample: is_wrong(sample) and False)  # run every sample, and judge them when all is learned
    left = [sample for sample in wrong if _is_beyond_excuse(judge, trials[sample])]
    return min(left, key=lambda sample: tuple(sample.sizes.values()), default=None)


def _is_beyond_excuse(judge: Judge, trial: SampleResult) -> bool:
    return trial.illegal is None and judge.compute_ratio(trial) > 1 and not judge.excuse(trial)


def _search(samples: Any, is_wrong: Callable[[Sample], bool]) -> Sample | None:
    """Return the last sample, shrunk, for which `is_wrong` holds, or None if hypothesis draws no such sample."""
    failing: list[Sample] = []

    @settings(
        max_examples=MAX_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(samples)
    def agrees(sample: Sample) -> None:
        if is_wrong(sample):
            failing.append(sample)
            raise _WrongSampleError

    try:
        agrees()
    except (_WrongSampleError, Flaky):
        return failing[-1] if failing else None
    return None
