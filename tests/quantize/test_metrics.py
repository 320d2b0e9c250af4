"""Drops, and that NaN, wrong shapes and useless metrics never pass for quality."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fairway.diagnostics.errors import UserError
from fairway.tune.quantize.error_metrics import Feeds, RecipeMetric, Score, add_scores, score_outputs


def score(right: Any, candidate: Any) -> Score:
    return score_outputs(["y"], [np.asarray(right)], [np.asarray(candidate)])


RIGHT = np.array([[3.0, 0.0, 1.0], [0.0, 4.0, 2.0]], np.float32)


def test_one_percent_of_the_power_is_twenty_decibels() -> None:
    result = score(RIGHT, RIGHT * 1.1)
    assert result.compute_drop("sqnr") == pytest.approx(0.01, rel=1e-5)
    assert result.sqnr == pytest.approx(20, abs=1e-3)
    assert result.compute_drop("cosine") == pytest.approx(0, abs=1e-9)


def test_the_same_answers_lose_nothing() -> None:
    result = score(RIGHT, RIGHT)
    assert [result.compute_drop(m) for m in ("sqnr", "cosine", "kl", "top1")] == [0, pytest.approx(0, abs=1e-12), 0, 0]


def test_another_largest_element_is_a_disagreement() -> None:
    other = RIGHT.copy()
    other[1] = [5, 4, 2]
    assert score(RIGHT, other).compute_drop("top1") == 0.5
    assert score(RIGHT, other).compute_drop("kl") > 0.1


def test_sums_add_up_over_samples_and_the_worst_output_counts() -> None:
    both = add_scores([score(RIGHT, RIGHT), score(RIGHT, RIGHT * 1.1)])
    assert both.compute_drop("sqnr") == pytest.approx(0.005, rel=1e-5)
    two = score_outputs(["a", "b"], [RIGHT, RIGHT], [RIGHT, RIGHT * 1.1])
    assert two.compute_drop("sqnr") == pytest.approx(0.01, rel=1e-5)


@pytest.mark.parametrize("metric", ["sqnr", "cosine", "kl"])
def test_nan_in_the_candidate_is_the_worst_there_is(metric: str) -> None:
    broken = RIGHT.copy()
    broken[0, 0] = np.nan
    assert score(RIGHT, broken).compute_drop(metric) == math.inf


def test_places_where_the_float_model_is_not_finite_are_left_out() -> None:
    right, other = RIGHT.copy(), RIGHT * 1.1
    right[0, 0], other[0, 0] = np.inf, 7
    assert score(right, other).compute_drop("sqnr") == pytest.approx(0.01, rel=1e-5)


def test_another_shape_and_other_whole_numbers_are_the_worst_there_is() -> None:
    assert score(RIGHT, RIGHT[:1]).compute_drop("sqnr") == math.inf
    assert score(np.array([1, 2]), np.array([1, 3])).compute_drop("sqnr") == math.inf
    assert math.isnan(score(np.array([1, 2]), np.array([1, 2])).compute_drop("sqnr"))


def model(feeds: Feeds) -> dict[str, Any]:
    return {"y": RIGHT + feeds["x"]}


FEEDS = {"x": np.zeros((2, 3), np.float32)}


def seen(function: Any) -> str:
    with pytest.raises(UserError) as raised:
        RecipeMetric(function, model)
    assert raised.value.finding.code == "FW711"
    return raised.value.finding.seen


def test_a_metric_that_is_constant_is_refused() -> None:
    assert seen(lambda fn: 0.93) == "metric() gave 0.93 for the model, and the same for scrambled outputs"


def test_a_metric_that_returns_nan_is_refused() -> None:
    assert seen(lambda fn: math.nan) == "metric(): expected a finite number, got nan"


def test_a_metric_that_raises_is_refused() -> None:
    assert seen(lambda fn: fn({})) == "metric() raised KeyError: 'x'"


def test_a_metric_of_the_recipes_own_is_lost_as_a_share() -> None:
    own = RecipeMetric(lambda fn: float(fn(FEEDS)["y"].sum()), model)
    assert own.float_value == 10
    assert own.compute_drop(lambda feeds: {"y": RIGHT * 0.9}) == pytest.approx(0.1, rel=1e-5)
    assert own.compute_drop(lambda feeds: {"y": RIGHT * 1.1}) == 0, "a better output has no loss"
