"""A value is known again by its digest, and an error in it is seen at its size."""

from __future__ import annotations

import numpy as np
import pytest

from fairway.judge.locate.digest import DIGEST_CHUNK_ELEMENTS, Digest, compute_digest

RNG = np.random.default_rng(3)


def of(array: np.ndarray) -> Digest:
    found = compute_digest(array)
    assert found is not None
    return found


@pytest.mark.parametrize("shape", [(7,), (3, 5, 4), (DIGEST_CHUNK_ELEMENTS + 3,), (2, DIGEST_CHUNK_ELEMENTS)])
def test_an_error_is_measured_at_its_size(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape)
    noise = RNG.standard_normal(shape)
    for size in (1e-6, 1e-3, 0.1):
        measured = of(x).measure_error(of(x + size * noise))
        true = size * np.linalg.norm(noise) / np.linalg.norm(x)
        assert 0.1 * true < measured < 5 * true


def test_another_order_is_shuffled_and_not_the_same() -> None:
    x = RNG.standard_normal((6, 10))
    assert of(x).measure_error(of(x.T)) > 0.1
    assert of(x).is_shuffle_of(of(x.T), 1e-9)
    assert not of(x).is_shuffle_of(of(x.T * 1.01), 1e-4)


def test_another_shape_with_the_same_elements_in_order_differs_in_shape_alone() -> None:
    x = RNG.standard_normal((6, 10))
    assert of(x).measure_error(of(x.reshape(15, 4))) == 0
    assert not of(x).is_equal_to(of(x.reshape(15, 4)))
    assert of(x).is_equal_to(of(x * (1 + 1e-9)))


def test_one_element_in_a_million_is_seen() -> None:
    x = RNG.standard_normal(1_000_000).astype(np.float32)
    y = x.copy()
    y[777_777] += 5
    assert of(x).measure_error(of(y)) > 1e-3


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, np.finfo(np.float32).min])
def test_what_is_not_finite_counts(odd: float) -> None:
    x = RNG.standard_normal(20).astype(np.float32)
    y = x.copy()
    y[3] = odd
    assert of(x).measure_error(of(y)) == float("inf")
    assert of(y).measure_error(of(y)) == 0


def test_the_lowest_number_and_minus_infinity_mask_alike() -> None:
    x = np.array([1.0, np.finfo(np.float32).min, 2.0], np.float32)
    y = np.array([1.0, -np.inf, 2.0], np.float32)
    assert of(x).measure_error(of(y)) == 0


def test_whole_numbers_bools_and_complex_numbers_have_one_and_text_has_none() -> None:
    assert of(np.array([1, 2, 3])).measure_error(of(np.array([1, 2, 4]))) > 0.1
    assert of(np.array([True, False])).measure_error(of(np.array([False, True]))) > 0.1
    assert of(np.array([1 + 2j, 3])).shape == (2, 2)
    assert compute_digest(np.array(["a"])) is None


def test_what_is_all_alike_is_plain_and_nothing_is_no_error() -> None:
    assert of(np.zeros((3, 3))).is_constant
    assert of(np.zeros(5)).measure_error(of(np.zeros(5))) == 0
    assert not of(np.array([0.0, 1.0])).is_constant
    assert of(np.zeros((0, 4))).measure_error(of(np.zeros((0, 4)))) == 0
