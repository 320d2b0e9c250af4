"""The lattice goes to the bounds, to their neighbours, and to sizes the capture spoke of."""

from fairway.evidence.lattice import lattice, probes
from fairway.subject.dims import Dim, Domain

DOMAIN = Domain((Dim("batch", 1, 8), Dim("time", 10, 2000)))
EXAMPLE, OTHER = {"batch": 2, "time": 19}, {"batch": 3, "time": 23}


def _points(level, **more):
    return [s.sizes for s in lattice(DOMAIN, EXAMPLE, OTHER, level, **more)]


def test_standard_visits_every_bound_and_its_neighbour():
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
    sizes = [s.sizes["seq"] for s in lattice(domain, {"seq": 16}, {"seq": 24}, "standard")]
    assert all(n % 8 == 0 for n in sizes)
    assert 8 in sizes
    assert 512 in sizes


def test_a_dim_of_one_size_has_one_probe():
    assert probes(Dim("n", 4, 4)) == [4]


def test_no_dims_still_gives_samples():
    assert len(lattice(Domain(()), {}, {}, "standard")) >= 5


def test_no_sample_is_taken_twice():
    samples = lattice(DOMAIN, EXAMPLE, OTHER, "standard")
    assert len(set(samples)) == len(samples)
