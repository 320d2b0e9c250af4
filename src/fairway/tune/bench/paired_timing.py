"""Time arms together, round by round, so that other load on the machine affects all of them.

In each round every arm runs for about the same time, in random order. A ratio is taken within each round, and its
interval from the differences between rounds. Clock ramps and noisy processes, which last longer than a round, cancel.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fairway.tune.bench.ratio import Ratio, compare_durations

MAX_ROUNDS = 60
MIN_ROUNDS, MIN_LONG_CALL_ROUNDS = 15, 8
"""Rounds that are run even if they take longer than the requested time; fewer if a single call takes as long as that.
"""

MIN_DURATION_SECONDS = 100e-6
"""Shorter calls are timed several together, since reading the clock takes a tenth of a microsecond."""

LONG_CALL_SECONDS = 0.05
"""A call this long is not affected by the arm that ran before it."""

CallTimer = Callable[[int, int], Sequence[float]]
"""(times, calls) -> `times` durations of a call in seconds, each the mean of `calls` calls in a row."""


@dataclass(frozen=True)
class Arm:
    """One of the things to compare. Arms in another process bring a `clock` and time themselves."""

    name: str
    call: Callable[[], object]
    clock: CallTimer | None = None

    def time(self, times: int, calls: int) -> Sequence[float]:
        return self.clock(times, calls) if self.clock is not None else time_calls(self.call, times, calls)


class ArmFailed(Exception):
    """An arm raised while it was timed; the error is the cause."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Timings:
    """Everything that was measured, in seconds for a call."""

    samples: dict[str, tuple[float, ...]]
    """By arm, the median of each round; the same index is the same round for all arms."""
    durations: dict[str, tuple[tuple[float, ...], ...]]
    """By arm and round, every duration."""
    calls: dict[str, int]
    """By arm, the number of calls averaged in one duration: 1 except for very short calls."""
    seed: int

    @property
    def rounds(self) -> int:
        return len(next(iter(self.samples.values())))

    def percentiles(self, name: str) -> tuple[float, float, float]:
        """Return p50, p95 and p99 over every duration."""
        durations = [duration for round_ in self.durations[name] for duration in round_]
        p50, p95, p99 = np.percentile(durations, (50, 95, 99))
        return float(p50), float(p95), float(p99)

    def ratio(self, name: str, base: str) -> Ratio:
        """Return how many times faster arm `name` is than `base`: above 1, its calls are shorter."""
        return compare_durations(self.durations[base], self.durations[name], self.seed)


def time_in_rounds(
    arms: Sequence[Arm], *, seconds: float = 1.0, warmup: float = 0.3, rounds: int = MAX_ROUNDS, seed: int = 0
) -> Timings:
    """Time the arms for about `seconds` each, after `warmup` seconds each. Slow arms may get fewer, longer rounds.

    Raises ArmFailed if an arm raises.
    """
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) != len(names):
        raise ValueError(f"expected distinct names of arms, got {names}")
    order = random.Random(seed)
    lasts = _warm_up(arms, warmup)
    slowest = max(lasts.values())
    fewest = MIN_LONG_CALL_ROUNDS if slowest > seconds / 2 else MIN_ROUNDS
    rounds = max(1, min(rounds, max(fewest, int(seconds / slowest))))
    share = seconds / rounds
    plan = {name: _plan_round(share, last) for name, last in lasts.items()}
    durations: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for _ in range(rounds):
        for arm in order.sample(list(arms), len(arms)):
            times, calls = plan[arm.name]
            # One extra call is not counted: the arm before it filled the caches.
            before = int(times > 2 and lasts[arm.name] < LONG_CALL_SECONDS)
            durations[arm.name].append(tuple(_time_arm(arm, times + before, calls)[before:]))
    return Timings(
        samples={name: tuple(map(statistics.median, parts)) for name, parts in durations.items()},
        durations={name: tuple(parts) for name, parts in durations.items()},
        calls={name: calls for name, (_, calls) in plan.items()},
        seed=seed,
    )


def time_calls(call: Callable[[], object], times: int, calls: int) -> list[float]:
    """Time calls in this process, with the garbage collector off: it would hit whichever arm happens to run."""
    now = time.perf_counter
    durations = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(times):
            started = now()
            for _ in range(calls):
                call()
            durations.append((now() - started) / calls)
    finally:
        if collecting:
            gc.enable()
    return durations


def _warm_up(arms: Sequence[Arm], seconds: float) -> dict[str, float]:
    """Run the arms in turn for their warm-up time; return how long a call of each takes at the end."""
    spent = dict.fromkeys((arm.name for arm in arms), 0.0)
    lasts = {arm.name: min(_time_arm(arm, 2, 1)) for arm in arms}
    while cold := [arm for arm in arms if spent[arm.name] < seconds]:
        for arm in cold:
            times = max(1, min(1000, int(seconds / 4 / max(lasts[arm.name], 1e-9))))
            seen = _time_arm(arm, times, 1)
            spent[arm.name] += max(sum(seen), 1e-9 * times)
            lasts[arm.name] = sorted(seen)[len(seen) // 4]  # other load must not make an arm look slow for good
    return {name: max(last, 1e-9) for name, last in lasts.items()}


def _plan_round(share: float, last: float) -> tuple[int, int]:
    """Return how often to read the clock in a round, and how many calls to make in between."""
    calls = max(1, round(MIN_DURATION_SECONDS / last))
    return max(1, int(share / (last * calls))), calls


def _time_arm(arm: Arm, times: int, calls: int) -> Sequence[float]:
    try:
        return arm.time(times, calls)
    except Exception as error:
        raise ArmFailed(arm.name) from error
