"""The lattice goes to the bounds, to the sizes next to them, and to sizes that the capture named."""

from itertools import pairwise

from fairway.judge.lattice import (
    COUNTED_VALUES,
    SWEEP_SIZES,
    WALK_STEPS,
    LatticeHints,
    build_lattice,
    choose_probe_sizes,
)
from fairway.model.dims import Dim, Domain
from fairway.model.values import FLAVORS

DOMAIN = Domain((Dim("batch", 1, 8), Dim("time", 10, 2000)))
EXAMPLE, OTHER = {"batch": 2, "time": 19}, {"batch": 3, "time": 23}


def _points(level, **hints):
    return [s.sizes for s in build_lattice(DOMAIN, EXAMPLE, OTHER, level, hints=LatticeHints(**hints))]


def test_standard_visits_every_bound_and_its_neighbor():
    times = {p["time"] for p in _points("standard")}
    assert {10, 11, 1999, 2000, 19, 23} <= times
    assert {1, 2, 7, 8} <= {p["batch"] for p in _points("standard")}


def test_standard_crosses_the_extremes():
    assert {"batch": 1, "time": 2000} in _points("standard")
    assert {"batch": 8, "time": 10} in _points("standard")


def test_quick_visits_both_corners():
    assert {"batch": 1, "time": 10} in _points("quick")
    assert {"batch": 8, "time": 2000} in _points("quick")
    assert len(_points("quick")) <= 6


def test_sizes_named_by_the_capture_are_visited_on_both_sides():
    assert {"batch": 2, "time": 500} in _points("quick", edges={"time": (500, 501)})
    assert {"batch": 2, "time": 501} in _points("quick", edges={"time": (500, 501)})


def test_multiples_are_respected():
    domain = Domain((Dim("seq", 8, 512, 8),))
    sizes = [s.sizes["seq"] for s in build_lattice(domain, {"seq": 16}, {"seq": 24}, "standard")]
    assert all(n % 8 == 0 for n in sizes)
    assert 8 in sizes
    assert 512 in sizes


def test_a_dim_of_one_size_has_one_probe():
    assert choose_probe_sizes(Dim("n", 4, 4)) == [4]


def test_no_dims_still_gives_samples():
    assert len(build_lattice(Domain(()), {}, {}, "standard")) >= 5


def test_no_sample_is_taken_twice():
    samples = build_lattice(DOMAIN, EXAMPLE, OTHER, "standard")
    assert len(set(samples)) == len(samples)


def test_standard_meets_every_remainder_by_small_numbers():
    for name in ("batch", "time"):
        sizes = {p[name] for p in _points("standard")}
        for by in (2, 3, 4, 5, 7, 8):
            assert {n % by for n in sizes} == set(range(by)) or name == "batch"
    assert {p["batch"] for p in _points("standard")} == set(range(1, 9))


def test_the_walk_through_small_sizes_stays_small():
    extra = [s.sizes for s in build_lattice(DOMAIN, EXAMPLE, OTHER, "standard") if 30 <= s.seed < 30 + WALK_STEPS]
    assert len(extra) >= WALK_STEPS - 2
    assert max(p["time"] for p in extra) < 10 + WALK_STEPS


def test_sizes_the_file_speaks_of_are_visited_and_so_is_the_next():
    assert {"batch": 2, "time": 777} in _points("standard", sizes={"time": [777]})
    assert {"batch": 2, "time": 778} in _points("standard", sizes={"time": [777]})
    assert {"batch": 2, "time": 777} not in _points("quick", sizes={"time": [777]})
    assert {"batch": 2, "time": 2001} not in _points("standard", sizes={"time": [2000]})


def test_deep_visits_every_size_of_a_dim_that_has_few():
    domain = Domain((Dim("batch", 1, 8), Dim("time", 1, SWEEP_SIZES)))
    samples = build_lattice(domain, EXAMPLE, OTHER, "deep")
    assert {s.sizes["time"] for s in samples} == set(range(1, SWEEP_SIZES + 1))
    assert {s.flavor for s in samples} == set(FLAVORS)


def test_deep_spreads_over_a_dim_that_has_many():
    times = sorted({p["time"] for p in _points("deep")})
    assert max(b - a for a, b in pairwise(times)) <= 1990 // (SWEEP_SIZES - 1) + 1


def test_deep_counts_through_the_values_where_it_is_cheapest():
    counted = [s for s in build_lattice(DOMAIN, EXAMPLE, OTHER, "deep") if s.flavor == "same" and s.sizes["time"] == 10]
    assert {s.seed for s in counted} >= set(range(COUNTED_VALUES))
    assert all(s.sizes == {"batch": 1, "time": 10} for s in counted)


def test_deep_contains_standard():
    assert set(build_lattice(DOMAIN, EXAMPLE, OTHER, "standard")) <= set(build_lattice(DOMAIN, EXAMPLE, OTHER, "deep"))


def test_values_the_file_speaks_of_are_met_at_a_small_point():
    samples = build_lattice(DOMAIN, EXAMPLE, OTHER, "standard", hints=LatticeHints(thresholds=[0.5, -1.0]))
    near = [s for s in samples if s.touch and s.touch.kind == "near"]
    assert [s.touch.value for s in near] == [0.5, 0.5, -1.0, -1.0]
    assert len({s.seed for s in near}) == 2
    assert all(s.sizes == {"batch": 8, "time": 10 + WALK_STEPS - 1} for s in near)
    quick = build_lattice(DOMAIN, EXAMPLE, OTHER, "quick", hints=LatticeHints(thresholds=[0.5]))
    assert all(s.touch is None for s in quick)
    assert str(near[0]).endswith("(seed 21, values near 0.5)")


def test_large_values_are_met_at_the_highest_corner_too():
    """Many elements show an overflow that a small sample, clipped or masked later, can hide."""
    large = [s.sizes for s in build_lattice(DOMAIN, EXAMPLE, OTHER, "standard") if s.flavor == "large"]
    assert {d.name: d.sizes[-1] for d in DOMAIN.dims} in large
