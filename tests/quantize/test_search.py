"""The fewest units are kept, including the planted one, and a budget lists its shortfalls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.quantize.nets import mlp, ready

from fairway.tune.bench.ratio import Ratio
from fairway.tune.quantize.accuracy import JudgedVariant
from fairway.tune.quantize.error_metrics import Score
from fairway.tune.quantize.prepare import Unit
from fairway.tune.quantize.quality_budget import Budget
from fairway.tune.quantize.quantize_file import choose_best
from fairway.tune.quantize.schemes import Variant
from fairway.tune.quantize.search import MixEvaluator, find_smallest_mix, rank_units
from fairway.tune.quantize.slices import SlicedModel


def test_the_planted_layer_ranks_first_and_keeping_it_is_enough(tmp_path: Path) -> None:
    context, samples = ready(mlp(tmp_path / "net.onnx", planted=2), tmp_path / "work")
    scene = MixEvaluator(SlicedModel(context), list(samples.read_calibration())[:6], "sqnr")
    ranked = rank_units(scene)
    assert ranked[0][0].name == "third"
    assert ranked[0][1] > 5 * ranked[1][1]
    mix = find_smallest_mix([unit for unit, _ in ranked], scene.measure_drop, 1e-3)
    assert mix.keep == ("third",)
    assert mix.drop < 1e-3 < scene.measure_drop(())


def units(*weights: int) -> list[Unit]:
    return [Unit(f"u{i}", (f"u{i}",), "MatMul", size) for i, size in enumerate(weights)]


def losing(losses: dict[str, float]) -> Any:
    def drop(keep: Sequence[str]) -> float:
        return sum(loss for name, loss in losses.items() if name not in keep)

    return drop


def test_halving_finds_the_shortest_head_and_gives_back_what_is_not_needed() -> None:
    losses = {"u0": 0.5, "u1": 0.2, "u2": 0.1, "u3": 0.01}
    assert set(find_smallest_mix(units(1, 1, 1, 1), losing(losses), 0.15).keep) == {"u0", "u1"}
    assert find_smallest_mix(units(1, 1, 1, 1), losing(losses), 1.0).keep == ()
    assert set(find_smallest_mix(units(1, 1, 1, 1), losing(losses), 0.0).keep) == {"u0", "u1", "u2", "u3"}
    # The head is u0, u1, u2; but u1, which is large, is not needed once the two others are there.
    both = find_smallest_mix(units(1, 9, 1, 1), lambda keep: 0.0 if {"u0", "u2"} <= set(keep) else 1.0, 0.5)
    assert set(both.keep) == {"u0", "u2"}


def judged(
    drop: float = 0.001, size: float = 0.3, speed: Ratio | None = None, scheme: str = "int8-static"
) -> JudgedVariant:
    variant = Variant(scheme, Path("x.onnx"), (), (), 1)
    return JudgedVariant(variant, scheme, int(size * 1000), size, Score({}), drop, speed)


FASTER, SAME, SLOWER = Ratio(1.4, 1.3, 1.5), Ratio(1.0, 0.9, 1.1), Ratio(0.5, 0.4, 0.6)


@pytest.mark.parametrize(
    ("budget", "candidate", "lacking"),
    [
        (Budget(), judged(speed=FASTER), []),
        (Budget(), judged(speed=SAME), []),
        (Budget(), judged(speed=SAME, size=0.95), ["neither faster nor smaller: no difference shown, size 95%"]),
        (Budget(), judged(speed=SLOWER), ["slower than the float file: 0.50x"]),
        (Budget(), judged(speed=FASTER, drop=0.02), ["drop 2.00% > 1.00%"]),
        (Budget(), judged(speed=FASTER, drop=float("nan")), ["drop nan% > 1.00%"]),
        (Budget(max_size=0.5), judged(speed=SLOWER), []),
        (Budget(max_size=0.2), judged(speed=FASTER), ["size 30% > 20%"]),
        (Budget(min_speedup=1.2), judged(speed=FASTER), []),
        (Budget(min_speedup=1.2), judged(speed=SAME), ["speed 1.00x < 1.2x"]),
        (Budget(min_speedup=1.2), judged(speed=Ratio(1.3, 0.9, 1.6)), ["speed 1.30x is not shown to be above 1"]),
    ],
)
def test_what_is_lacking_is_said_with_both_numbers(
    budget: Budget, candidate: JudgedVariant, lacking: list[str]
) -> None:
    assert budget.list_shortfalls(candidate) == lacking


def test_of_those_that_are_as_fast_the_smallest_is_chosen() -> None:
    fast = judged(speed=Ratio(1.41, 1.31, 1.51), size=0.5, scheme="a")
    small = judged(speed=FASTER, size=0.3, scheme="b")
    slow = judged(speed=Ratio(1.1, 1.05, 1.15), size=0.1, scheme="c")
    assert choose_best([fast, small, slow], Budget()) is small
    assert choose_best([judged(drop=0.5, speed=FASTER)], Budget()) is None
    larger, smaller = judged(speed=SAME, size=0.4, scheme="d"), judged(speed=SAME, size=0.3, scheme="e")
    assert choose_best([larger, smaller], Budget()) is smaller
