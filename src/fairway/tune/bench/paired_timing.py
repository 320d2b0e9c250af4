"""Arms are timed beside each other, round by round, so that whatever else the machine does hits all of them alike.

In each round every arm runs for about the same time, in an order drawn anew. A ratio is taken within each round, and
its interval from how the rounds differ; clock ramps and noisy neighbours, which last longer than a round, cancel.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fairway.tune.bench.ratio import Ratio, ratio_of

ROUNDS = 60
FEW, FEWEST = 15, 8
"""Rounds that are taken even where they last longer than was asked for; and of calls that last as long as that."""

GRAIN = 100e-6
"""Seconds: shorter calls are timed several together, since reading the clock takes a tenth of a microsecond."""

LONG = 0.05
"""Seconds: a call this long does not notice whose turn it was before."""

Clock = Callable[[int, int], Sequence[float]]
"""(times, calls) -> seconds of a call, as often as asked for, each the mean of so many calls in a row."""


@dataclass(frozen=True)
class Arm:
    """One of the things that are compared. `clock` is for those that live in another process and time themselves."""

    name: str
    call: Callable[[], object]
    clock: Clock | None = None

    def time(self, times: int, calls: int) -> Sequence[float]:
        return self.clock(times, calls) if self.clock is not None else clock(self.call, times, calls)


class ArmFailed(Exception):
    """An arm raised while it was timed; the error is the cause."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Timings:
    """Everything that was measured. Seconds of a call throughout."""

    samples: dict[str, tuple[float, ...]]
    """By arm, the median of each round; the same place is the same round for all arms."""
    durations: dict[str, tuple[tuple[float, ...], ...]]
    """By arm and round, every duration."""
    calls: dict[str, int]
    """By arm, how many calls one duration is the mean of: 1 but for very short ones."""
    seed: int

    @property
    def rounds(self) -> int:
        return len(next(iter(self.samples.values())))

    def percentiles(self, name: str) -> tuple[float, float, float]:
        """p50, p95 and p99 over every duration."""
        every = [one for part in self.durations[name] for one in part]
        p50, p95, p99 = np.percentile(every, (50, 95, 99))
        return float(p50), float(p95), float(p99)

    def ratio(self, name: str, base: str) -> Ratio:
        """How many times faster than `base` the arm `name` is: above 1, its calls are shorter."""
        return ratio_of(self.durations[base], self.durations[name], self.seed)


def paired(
    arms: Sequence[Arm], *, seconds: float = 1.0, warmup: float = 0.3, rounds: int = ROUNDS, seed: int = 0
) -> Timings:
    """Times the arms for about `seconds` each, after `warmup` seconds each. Slow ones may get fewer rounds, and longer.

    Raises ArmFailed where an arm raises.
    """
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) != len(names):
        raise ValueError(f"arms need names of their own: {names}")
    order = random.Random(seed)
    lasts = _warm_up(arms, warmup)
    slowest = max(lasts.values())
    fewest = FEWEST if slowest > seconds / 2 else FEW
    rounds = max(1, min(rounds, max(fewest, int(seconds / slowest))))
    share = seconds / rounds
    plan = {name: _plan(share, last) for name, last in lasts.items()}
    durations: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for _ in range(rounds):
        for arm in order.sample(list(arms), len(arms)):
            times, calls = plan[arm.name]
            # One more, which is not counted: the arm before it had the caches.
            before = int(times > 2 and lasts[arm.name] < LONG)
            durations[arm.name].append(tuple(_time(arm, times + before, calls)[before:]))
    return Timings(
        samples={name: tuple(map(statistics.median, parts)) for name, parts in durations.items()},
        durations={name: tuple(parts) for name, parts in durations.items()},
        calls={name: calls for name, (_, calls) in plan.items()},
        seed=seed,
    )


def clock(call: Callable[[], object], times: int, calls: int) -> list[float]:
    """The local clock. The garbage collector waits, as it would hit whichever arm happens to run."""
    now = time.perf_counter
    found = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(times):
            started = now()
            for _ in range(calls):
                call()
            found.append((now() - started) / calls)
    finally:
        if collecting:
            gc.enable()
    return found


def _warm_up(arms: Sequence[Arm], seconds: float) -> dict[str, float]:
    """Runs the arms in turn until each had its time; answers how long a call of each lasts by then."""
    spent = dict.fromkeys((arm.name for arm in arms), 0.0)
    lasts = {arm.name: min(_time(arm, 2, 1)) for arm in arms}
    while cold := [arm for arm in arms if spent[arm.name] < seconds]:
        for arm in cold:
            times = max(1, min(1000, int(seconds / 4 / max(lasts[arm.name], 1e-9))))
            seen = _time(arm, times, 1)
            spent[arm.name] += max(sum(seen), 1e-9 * times)
            lasts[arm.name] = sorted(seen)[len(seen) // 4]  # a neighbour must not make an arm look slow for good
    return {name: max(last, 1e-9) for name, last in lasts.items()}


def _plan(share: float, last: float) -> tuple[int, int]:
    """How often the clock is read in a round, and how many calls lie between."""
    calls = max(1, round(GRAIN / last))
    return max(1, int(share / (last * calls))), calls


def _time(arm: Arm, times: int, calls: int) -> Sequence[float]:
    try:
        return arm.time(times, calls)
    except Exception as error:
        raise ArmFailed(arm.name) from error
