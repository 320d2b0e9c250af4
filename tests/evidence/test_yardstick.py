"""The yardstick: tolerance follows PyTorch's own error, by magnitude."""

import numpy as np

from fairway.evidence.compare import Difference, Measured, compare_exact, compare_structure, measure
from fairway.evidence.yardstick import BUCKETS, FACTOR, Yardstick, bucket, worst_by_bucket


def _judged(truth, own, theirs, dtype="float32"):
    got = measure("y", truth, own, theirs)
    assert isinstance(got, Measured)
    yardstick = Yardstick(dtype, truthful=True)
    yardstick.learn(got.own, got.largest)
    return float((got.theirs / yardstick.tolerance()).max())


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


def test_without_float64_the_stated_tolerance_is_used():
    yardstick = Yardstick("float32", truthful=False)
    values = np.array([1.0, 2.0, 0.5])
    yardstick.learn(worst_by_bucket(np.ones(3), bucket(values)), 2.0)
    tolerance = yardstick.tolerance()
    at_one = tolerance[bucket(np.array([1.0]))[0]]
    assert 1e-4 < at_one < 1e-2


def test_buckets_cover_zero_and_infinity():
    found = bucket(np.array([0.0, 1e-300, 1.0, 1e300]))
    assert found.min() == 0
    assert found.max() == BUCKETS - 1


def test_nan_in_another_place_is_a_difference():
    ours = np.array([1.0, np.nan, 3.0], dtype=np.float32)
    theirs = np.array([np.nan, 1.0, 3.0], dtype=np.float32)
    got = measure("y", ours.astype(np.float64), ours, theirs)
    assert isinstance(got, Difference)
    assert got.code == "FW405"
    assert got.text == "y[0]: PyTorch 1.0, file nan; 2 of 3 differ"


def test_nan_in_the_same_place_is_not():
    ours = np.array([1.0, np.nan, np.inf, -np.inf], dtype=np.float32)
    assert isinstance(measure("y", ours.astype(np.float64), ours, ours.copy()), Measured)


def test_infinities_of_other_sign_differ():
    ours = np.array([np.inf], dtype=np.float32)
    got = measure("y", ours.astype(np.float64), ours, -ours)
    assert isinstance(got, Difference)


def test_where_pytorch_overflows_and_float64_does_not_either_answer_will_do():
    truth = np.array([1e39, 1.0])
    ours = np.array([np.inf, 1.0], dtype=np.float32)
    assert isinstance(measure("y", truth, ours, np.array([3e38, 1.0], dtype=np.float32)), Measured)
    assert isinstance(measure("y", truth, ours, ours.copy()), Measured)


def test_empty_outputs_compare():
    empty = np.zeros((0, 3), dtype=np.float32)
    got = measure("y", empty.astype(np.float64), empty, empty)
    assert isinstance(got, Measured)
    assert got.elements == 0


def test_shapes_and_dtypes_must_match():
    a = np.zeros((2, 3), dtype=np.float32)
    assert compare_structure("y", a, a) is None
    assert compare_structure("y", a, a.T).code == "FW403"
    assert compare_structure("y", a, a.astype(np.float64)).code == "FW404"


def test_whole_numbers_match_exactly_but_for_ties():
    ours, theirs = np.array([1, 2, 3]), np.array([1, 5, 3])
    found, undecided = compare_exact("y", ours, theirs, [])
    assert found is not None
    assert found.text == "y[1]: PyTorch 2, file 5; 1 of 3 differ"
    assert undecided == 0
    tied, undecided = compare_exact("y", ours, theirs, [np.array([1, 5, 3])])
    assert tied is None
    assert undecided == 1


def test_the_factor_is_what_the_docs_say():
    assert FACTOR == 10.0
