"""The yardstick: tolerance follows PyTorch's own error, by magnitude."""

import numpy as np
import pytest

from fairway.judge.cells import BUCKET_COUNT, MAX_POSITIONS, ZERO_BUCKET, find_buckets, find_positions
from fairway.judge.compare import Difference, Measurement, compare_structure, is_lost, measure_errors
from fairway.judge.counts import count_differences
from fairway.judge.yardstick import ERROR_FACTOR, Yardstick


def _judged(truth, own, theirs, dtype="float32"):
    return _judged_all([(truth, own, theirs)], dtype)


def _judged_all(samples, dtype="float32", truthful=True):
    """Return the worst ratio over samples that are learned from and judged together."""
    yardstick, measured = Yardstick(dtype, truthful), []
    for truth, own, theirs in samples:
        got = measure_errors("y", truth, own, theirs, by_row=not truthful, dtype=dtype)
        assert isinstance(got, Measurement)
        yardstick.learn(got.cells, got.largest)
        measured.append(got)
    return max(float((got.theirs / yardstick.allow(got.cells.index)).max()) for got in measured)


def test_a_candidate_as_good_as_pytorch_is_right():
    truth = np.random.default_rng(0).normal(size=1000)
    own = truth.astype(np.float32)
    assert _judged(truth, own, np.nextafter(own, np.float32(9))) < 1


def test_an_error_hundred_times_pytorchs_own_is_wrong():
    truth = np.random.default_rng(0).normal(size=1000)
    own = (truth * (1 + 1e-7)).astype(np.float32)
    theirs = own.copy()
    theirs[17] += 1e-4
    assert _judged(truth, own, theirs) > 1


def test_large_elements_do_not_hide_errors_in_small_ones():
    """Pad columns near -1e4 have units in the last place of 1e-3; columns near 1 do not."""
    rng = np.random.default_rng(0)
    truth = np.concatenate([rng.normal(size=500), np.full(500, -1e4) + rng.normal(size=500)])
    own = truth.astype(np.float32)
    theirs = own.copy()
    theirs[3] += 2e-4
    assert _judged(truth, own, theirs) > 1


def test_a_float64_output_computed_in_float32_is_measured_by_float32s_error():
    truth = np.random.default_rng(0).normal(size=1000)
    own = truth.astype(np.float32).astype(np.float64)
    assert _judged(truth, own, np.nextafter(own.astype(np.float32), np.float32(9)).astype(np.float64), "float64") < 1
    assert _judged(truth, own, own * (1 + 1e-4), "float64") > 1


def test_a_float64_output_computed_in_float64_has_the_stated_tolerance():
    truth = np.random.default_rng(0).normal(size=1000)
    assert _judged(truth, truth, truth * (1 + 1e-10), "float64") < 1
    assert _judged(truth, truth, truth.astype(np.float32).astype(np.float64), "float64") > 1


def test_half_precision_gets_half_precisions_slack():
    truth = np.random.default_rng(0).normal(size=1000)
    own = truth.astype(np.float16)
    theirs = (truth * (1 + 2e-3)).astype(np.float16)
    assert _judged(truth, own, theirs, "float16") < 1
    assert _judged(truth, own, (truth + 0.5).astype(np.float16), "float16") > 1


def test_zero_error_of_pytorch_still_leaves_a_few_ulps():
    truth = np.ones(10)
    own = np.ones(10, dtype=np.float32)
    assert _judged(truth, own, np.nextafter(own, np.float32(2))) < 1
    assert _judged(truth, own, own + np.float32(1e-4)) > 1


def _rows(count, width, seed=0):
    """Right answers, and two roundings of them that are independent of each other."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(count, width))
    own, theirs = ((truth + 3e-6 * rng.normal(size=truth.shape)).astype(np.float32) for _ in range(2))
    return truth, own, theirs


@pytest.mark.parametrize("factor", [1.0, 1.001, 3.0])
def test_a_cancelling_channel_does_not_free_the_others(factor):
    truth, own, theirs = _rows(40, 12)
    rng = np.random.default_rng(1)
    truth[:, 0] *= 1e-3
    own[:, 0], theirs[:, 0] = (truth[:, 0] + 1e-3 * rng.normal(size=40) for _ in range(2))
    theirs[:, 5] *= factor
    assert (_judged(truth, own, theirs) > 1) is (factor != 1.0)


def test_a_cancelling_channel_does_not_free_the_others_of_images():
    truth, own, theirs = (one.reshape(4, 12, 10, 10) for one in _rows(48, 100))
    own[:, 0] += np.random.default_rng(1).normal(size=(4, 10, 10)).astype(np.float32) * 1e-3
    assert _judged(truth, own, theirs) < 1
    theirs[:, 5] *= np.float32(1.001)
    assert _judged(truth, own, theirs) > 1


@pytest.mark.parametrize("shape", [(1, 3), (2, 4), (1, 300), (30, 2), (64, 64), (7,), (), (3, 1)])
def test_another_rounding_of_the_same_size_is_right(shape):
    """A position with few elements can have a tiny error by chance."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(150):
        samples = []
        for _ in range(3):
            truth = rng.normal(size=shape)
            own, theirs = (np.float32(truth + 3e-6 * rng.normal(size=shape)) for _ in range(2))
            samples.append((truth, np.asarray(own), np.asarray(theirs)))
        worst = max(worst, _judged_all([tuple(np.asarray(one) for one in sample) for sample in samples]))
    assert worst < 1


def test_positions_are_at_most_256_groups_of_neighbors():
    found = find_positions((2, 1000), 0, 2000)
    assert found.max() == MAX_POSITIONS - 1
    assert (np.diff(found[:1000]) >= 0).all()
    assert (found[:1000] == found[1000:]).all()
    assert find_positions((5,), 1, 4).tolist() == [1, 2, 3]
    assert find_positions((), 0, 1).tolist() == [0]


@pytest.mark.parametrize("size", [1e-20, 1e-30, 1e-37])
def test_small_numbers_are_compared_down_to_the_dtypes_smallest(size):
    truth, own, theirs = ((one * size).astype(one.dtype) for one in _rows(40, 4))
    assert _judged(truth, own, theirs) < 1
    theirs[:, 2] *= np.float32(1.01)
    assert _judged(truth, own, theirs) > 1


def test_denormal_numbers_have_a_few_steps_and_no_more():
    truth = np.full((20, 2), 1e-42)
    own = truth.astype(np.float32)
    assert _judged(truth, own, own + np.float32(4e-45)) < 1
    assert _judged(truth, own, own * np.float32(1.1)) > 1


def test_float64_outputs_are_compared_below_float32s_range():
    truth = np.random.default_rng(0).normal(size=(30, 4)) * 1e-200
    assert _judged(truth, truth, truth * (1 + 1e-10), "float64") < 1
    assert _judged(truth, truth, truth * (1 + 1e-6), "float64") > 1


def test_one_jump_of_a_step_function_frees_no_other_element():
    """Float64 rounds one number the other way. That says nothing about the error of the others."""
    truth = np.tile(np.arange(8.0), (50, 1))
    own = truth.astype(np.float32)
    truth[7, 3] += 1
    assert _judged(truth, own, own) < 1
    assert _judged(truth, own, truth.astype(np.float32)) < 1
    theirs = own.copy()
    theirs[20, 3] += 1
    assert _judged(truth, own, theirs) > 1


def test_a_stated_tolerance_goes_by_the_element_and_not_by_the_largest():
    own = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32)
    own[3, 2] = 1e4
    truth = own.astype(np.float64)
    theirs = own * np.float32(1 + 1e-5)
    assert _judged_all([(truth, own, theirs)], truthful=False) < 1
    theirs[7, 6] += np.float32(0.1)
    assert _judged_all([(truth, own, theirs)], truthful=False) > 1


def test_a_stated_tolerance_allows_small_parts_of_a_whole_its_rounding():
    own = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32) * 100
    own[3, 2] = 1e-6
    theirs = own.copy()
    theirs[3, 2] += np.float32(2e-4)
    assert _judged_all([(own.astype(np.float64), own, theirs)], truthful=False) < 1


def test_buckets_cover_zero_and_infinity():
    found = find_buckets(np.array([0.0, 5e-324, 1.0, 1.7e308, np.inf]))
    assert found[0] == ZERO_BUCKET
    assert found.max() == BUCKET_COUNT - 1
    assert len(set(found)) == 5


def test_pytorchs_numbers_are_lost_if_they_are_off_by_their_own_size():
    truth, own, theirs = _rows(20, 4)
    got = measure_errors("y", truth, own, theirs)
    assert isinstance(got, Measurement)
    assert not is_lost(got, "normal")
    own[:, 1] = 2 * own[:, 1]
    got = measure_errors("y", truth, own, theirs)
    assert isinstance(got, Measurement)
    assert is_lost(got, "normal")


def test_nan_in_another_place_is_a_difference():
    ours = np.array([1.0, np.nan, 3.0], dtype=np.float32)
    theirs = np.array([np.nan, 1.0, 3.0], dtype=np.float32)
    got = measure_errors("y", ours.astype(np.float64), ours, theirs)
    assert isinstance(got, Difference)
    assert got.code == "FW405"
    assert got.text == "y[0]: PyTorch 1.0, file nan; 2 of 3 differ"


def test_nan_in_the_same_place_is_not():
    ours = np.array([1.0, np.nan, np.inf, -np.inf], dtype=np.float32)
    assert isinstance(measure_errors("y", ours.astype(np.float64), ours, ours.copy()), Measurement)


def test_infinities_of_other_sign_differ():
    ours = np.array([np.inf], dtype=np.float32)
    got = measure_errors("y", ours.astype(np.float64), ours, -ours)
    assert isinstance(got, Difference)


def test_where_pytorch_overflows_the_file_gives_its_answer_or_the_truth():
    truth = np.array([1e39, 50.0, 1.0])
    ours = np.array([np.inf, np.nan, 1.0], dtype=np.float32)
    assert _judged(truth, ours, ours.copy()) < 1
    assert _judged(truth, ours, np.array([np.inf, 50.0, 1.0], dtype=np.float32)) < 1
    assert _judged(truth, ours, np.array([3e38, 50.0, 1.0], dtype=np.float32)) > 1
    assert _judged(truth, ours, np.array([np.inf, 7.0, 1.0], dtype=np.float32)) > 1
    for wrong in ([-np.inf, np.nan, 1.0], [np.inf, np.inf, 1.0], [np.nan, np.nan, 1.0]):
        got = measure_errors("y", truth, ours, np.array(wrong, dtype=np.float32))
        assert isinstance(got, Difference)
        assert got.code == "FW405"


def test_where_float64_overflows_pytorchs_answer_is_the_truth():
    truth, ours = np.array([np.nan, 1.0]), np.array([3.0, 1.0], dtype=np.float32)
    assert _judged(truth, ours, ours.copy()) < 1
    assert _judged(truth, ours, np.array([4.0, 1.0], dtype=np.float32)) > 1


def test_empty_outputs_compare():
    empty = np.zeros((0, 3), dtype=np.float32)
    got = measure_errors("y", empty.astype(np.float64), empty, empty)
    assert isinstance(got, Measurement)
    assert got.elements == 0


def test_shapes_and_dtypes_must_match():
    a = np.zeros((2, 3), dtype=np.float32)
    assert compare_structure("y", a, a) is None
    assert compare_structure("y", a, a.T).code == "FW403"
    assert compare_structure("y", a, a.astype(np.float64)).code == "FW404"


def test_whole_numbers_differ_at_ten_times_as_many_elements_as_pytorchs_own():
    ours = np.arange(100)
    moved, theirs = ours.copy(), ours.copy()
    theirs[1] = 5
    found = count_differences("y", ours, theirs, [])
    assert found.text == "y[1]: PyTorch 1, file 5; 1 of 100 differ"
    assert found.ratio == np.inf
    moved[7] += 1
    theirs[1] = 2
    assert count_differences("y", ours, theirs, [moved]).ratio <= 1
    theirs[:12] += 1
    assert count_differences("y", ours, theirs, [moved]).ratio > 1


def test_whole_numbers_differ_by_ten_times_as_much_as_pytorchs_own():
    """As `(x * 1e12).long()`, which float64 answers differently throughout."""
    ours = np.arange(1, 101) * 10**12
    moved = ours + 10**5
    assert count_differences("y", ours, ours + 5 * 10**5, [moved]).ratio <= 1
    assert count_differences("y", ours, np.zeros_like(ours), [moved]).ratio > 1


def test_the_factor_is_what_the_docs_say():
    assert ERROR_FACTOR == 10.0
