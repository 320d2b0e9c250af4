"""Paired timing, on a fake clock, so that nothing depends on the load of this machine."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fairway.tune.bench.paired_timing import MIN_LONG_CALL_ROUNDS, Arm, ArmFailed, time_in_rounds
from fairway.tune.bench.ratio import NO_DIFFERENCE_TEXT, Ratio, compare_durations


def told(name: str, lasts: Callable[[], float], seen: list[tuple[str, int, int]] | None = None) -> Arm:
    """An arm whose calls last as long as is said, without lasting."""

    def clock(times: int, calls: int) -> Sequence[float]:
        if seen is not None:
            seen.append((name, times, calls))
        return [lasts() for _ in range(times)]

    return Arm(name, lasts, clock)


def drawn(seed: int, middle: float, spread: float = 0.05) -> Callable[[], float]:
    rng = np.random.default_rng(seed)
    return lambda: float(middle * math.exp(rng.normal(0, spread)))


def test_every_round_holds_every_arm_once_in_an_order_that_changes() -> None:
    seen: list[tuple[str, int, int]] = []
    timings = time_in_rounds([told(n, drawn(i, 1e-3), seen) for i, n in enumerate("abc")], seconds=0.5, warmup=0)
    rounds = [seen[i][0] + seen[i + 1][0] + seen[i + 2][0] for i in range(3, len(seen), 3)]
    assert all(sorted(item) == ["a", "b", "c"] for item in rounds)
    assert len(set(rounds)) > 3
    assert timings.rounds == len(rounds) == len(timings.samples["b"])


def test_nothing_that_was_measured_is_lost() -> None:
    timings = time_in_rounds([told("a", drawn(0, 1e-3)), told("b", drawn(1, 2e-3))], seconds=0.5)
    assert sum(map(len, timings.durations["a"])) == pytest.approx(500, rel=0.25)
    assert sum(map(len, timings.durations["b"])) == pytest.approx(250, rel=0.25)
    assert timings.percentiles("b")[0] == pytest.approx(2e-3, rel=0.02)
    assert timings.percentiles("b")[0] < timings.percentiles("b")[1] < timings.percentiles("b")[2]


def test_short_calls_are_timed_several_together() -> None:
    seen: list[tuple[str, int, int]] = []
    timings = time_in_rounds([told("a", lambda: 1e-6, seen)], seconds=0.1)
    assert timings.calls["a"] == 100
    assert seen[-1][2] == 100


def test_a_slow_arm_gets_few_rounds_but_enough_for_an_interval() -> None:
    timings = time_in_rounds([told("a", drawn(0, 3.0)), told("b", drawn(1, 1.0))], seconds=1.0)
    assert timings.rounds == MIN_LONG_CALL_ROUNDS
    assert timings.ratio("b", "a").is_faster


def test_a_slow_arm_is_not_warmed_up_longer_because_another_is_fast() -> None:
    seen: list[tuple[str, int, int]] = []
    time_in_rounds([told("slow", lambda: 10.0, seen), told("fast", lambda: 1e-5, seen)], seconds=0.1, rounds=1)
    assert sum(times for name, times, _ in seen if name == "slow") == 2 + 1 + 1


def test_a_single_round_shows_nothing() -> None:
    timings = time_in_rounds([told("a", lambda: 1.0), told("b", lambda: 0.1)], rounds=1)
    ratio = timings.ratio("b", "a")
    assert (ratio.low, ratio.high, str(ratio)) == (0.0, math.inf, NO_DIFFERENCE_TEXT)


def test_an_arm_that_raises_is_named() -> None:
    def broken() -> float:
        raise RuntimeError("no")

    with pytest.raises(ArmFailed, match="b") as caught:
        time_in_rounds([told("a", lambda: 1e-3), told("b", broken)])
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_arms_need_distinct_names(names: list[str]) -> None:
    with pytest.raises(ValueError, match="distinct names"):
        time_in_rounds([told(name, lambda: 1.0) for name in names])


def test_the_clock_of_this_process_measures_real_calls() -> None:
    import time

    timings = time_in_rounds(
        [Arm("short", lambda: time.sleep(0.001)), Arm("long", lambda: time.sleep(0.004))], seconds=0.2, warmup=0.02
    )
    assert timings.ratio("short", "long").low > 1.5


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.lognormal(size=(40, 3)).tolist(), rng.lognormal(size=(40, 3)).tolist()
    assert compare_durations(a, b, 3) == compare_durations(a, b, 3) != compare_durations(a, b, 4)


def test_a_ratio_says_its_interval_or_that_nothing_was_shown() -> None:
    assert str(Ratio(1.32, 1.27, 1.38)) == "1.32x (1.27..1.38)"
    assert str(Ratio(0.8, 0.75, 0.86)) == "0.80x (0.75..0.86)"
    assert str(Ratio(1.02, 0.99, 1.05)) == NO_DIFFERENCE_TEXT
    assert Ratio(1.32, 1.27, 1.38).is_faster
    assert Ratio(0.8, 0.75, 0.86).is_slower
    assert not Ratio(1.02, 1.0, 1.05).differs


def test_rounds_that_are_not_paired_are_refused() -> None:
    with pytest.raises(ValueError, match="as many of both"):
        compare_durations([[1.0], [2.0]], [[1.0]])


def _series(kind: str, rng: np.random.Generator, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arms that are the same, on a machine that is not."""
    a, b = rng.normal(0, 0.02, rounds), rng.normal(0, 0.02, rounds)
    if kind == "neighbors alike":  # the load that remains after pairing lasts for some rounds
        left = np.zeros(rounds)
        for i in range(1, rounds):
            left[i] = 0.6 * left[i - 1] + rng.normal(0, 0.02)
        a = a + left
    if kind == "spikes":
        a, b = a + (rng.random(rounds) < 0.1) * 1.5, b + (rng.random(rounds) < 0.1) * 1.5
    return np.exp(a)[:, None], np.exp(b)[:, None]


@pytest.mark.parametrize("kind", ["independent", "neighbors alike", "spikes"])
@pytest.mark.parametrize("rounds", [8, 20, 60])
def test_a_thing_beside_itself_shows_no_difference_but_rarely(kind: str, rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    alarms = sum(compare_durations(*map(np.ndarray.tolist, _series(kind, rng, rounds))).differs for _ in range(300))
    assert alarms <= 15, f"{alarms} of 300"


def test_a_difference_of_five_percent_is_seen_through_noise_of_two() -> None:
    rng = np.random.default_rng(1)
    result = 0
    for _ in range(50):
        a, b = _series("independent", rng, 60)
        result += compare_durations(a.tolist(), (1.05 * b).tolist()).is_slower
    assert result == 50


@pytest.mark.parametrize(("few", "many"), [(1, 4), (2, 30), (5, 5)])
@pytest.mark.parametrize("rounds", [8, 60])
def test_more_calls_in_a_round_make_an_arm_no_faster(few: int, many: int, rounds: int) -> None:
    """Return durations over an order of magnitude, as on a busy machine; the smallest of many is smaller."""
    rng = np.random.default_rng(few)
    values, alarms = [], 0
    for _ in range(200):
        ratio = compare_durations(
            rng.lognormal(0, 1, (rounds, few)).tolist(), rng.lognormal(0, 1, (rounds, many)).tolist()
        )
        values.append(math.log(ratio.value))
        alarms += ratio.differs
    assert alarms <= 10
    assert abs(np.mean(values)) < 0.1, "off by less than a tenth, where one call may take ten times another"


def test_timing_needs_no_torch() -> None:
    modules = "fairway.tune.bench.paired_timing, fairway.tune.bench.arm_program"
    program = f"import sys; sys.modules['torch'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
