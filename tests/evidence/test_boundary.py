"""Shrinking finds the smallest failing shape and the true line between right and wrong."""

from fairway.judge.boundary import shrink_failure
from fairway.model.dims import Dim, Domain

DOMAIN = Domain((Dim("batch", 1, 8), Dim("time", 10, 2000)))
EXAMPLE = {"batch": 2, "time": 19}


def test_a_length_that_is_too_long_is_found_exactly():
    found = shrink_failure(DOMAIN, {"batch": 8, "time": 2000}, EXAMPLE, lambda p: p["time"] > 1009)
    assert found.point == {"batch": 1, "time": 1010}
    assert [(edge.dim, edge.right, edge.wrong, edge.is_clean) for edge in found.boundaries] == [
        ("time", 1009, 1010, True)
    ]
    assert min(found.wrong_at["time"]) == 1010
    assert max(found.wrong_at["time"]) == 2000
    assert str(found.boundaries[0]) == "right up to time=1009, wrong from 1010"
    assert found.fixed == ()


def test_a_dim_that_accepts_only_the_examples_size_is_called_fixed():
    found = shrink_failure(DOMAIN, {"batch": 8, "time": 2000}, EXAMPLE, lambda p: p["batch"] != 2)
    assert found.fixed == ("batch",)
    assert not found.wrong_at
    assert found.point["batch"] == 1


def test_both_dims_can_be_fixed():
    found = shrink_failure(DOMAIN, {"batch": 8, "time": 2000}, EXAMPLE, lambda p: p != EXAMPLE)
    assert found.fixed == ("batch", "time")


def test_a_file_that_is_wrong_everywhere_has_no_boundary():
    found = shrink_failure(DOMAIN, {"batch": 8, "time": 2000}, EXAMPLE, lambda p: True)
    assert found.point == {"batch": 1, "time": 10}
    assert found.boundaries == ()


def test_small_sizes_can_be_the_wrong_ones():
    found = shrink_failure(DOMAIN, {"batch": 1, "time": 10}, EXAMPLE, lambda p: p["time"] < 12)
    assert str(found.boundaries[0]) == "right down to time=12, wrong at 11"
    assert not found.wrong_at


def test_multiples_are_stepped_over():
    domain = Domain((Dim("seq", 8, 512, 8),))
    found = shrink_failure(domain, {"seq": 512}, {"seq": 16}, lambda p: p["seq"] > 100)
    assert [(edge.right, edge.wrong) for edge in found.boundaries] == [(96, 104)]


def test_a_defect_that_comes_and_goes_is_not_called_a_clean_boundary():
    found = shrink_failure(
        DOMAIN, {"batch": 8, "time": 2000}, EXAMPLE, lambda p: p["time"] > 1009 or p["time"] % 9 in (6, 7)
    )
    assert "and elsewhere" in str(found.boundaries[0])
    assert all(n > 1009 or n % 9 in (6, 7) for n in found.wrong_at["time"])


def test_no_point_is_tried_twice():
    tried = []

    def bad(point):
        tried.append(tuple(point.items()))
        return point["time"] > 1009

    shrink_failure(DOMAIN, {"batch": 8, "time": 2000}, EXAMPLE, bad)
    assert len(tried) == len(set(tried))
