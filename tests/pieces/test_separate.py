"""Regions: few and simple conditions that give each point a piece that serves it."""

from fairway.convert.pieces.separate import PointPieces, find_regions
from fairway.convert.pieces.size_map import SizeMap
from fairway.model.dims import Dim, Domain

DOMAIN = Domain((Dim("batch", 1, 4), Dim("time", 1, 64)))


def regions(truth, guards, domain=DOMAIN, every=1):
    """Regions for pieces whose right points are known: `truth` gives each point its pieces."""
    size_map = SizeMap(domain)
    points = [size_map.get_point(i) for i in range(0, size_map.count, every)]
    served = [PointPieces(point, frozenset(truth(**point))) for point in points]
    sure = [size_map.where_all(own) for own in guards]
    found = find_regions(size_map, [g for own in guards for g in own], served, sure)
    _check(size_map, found, truth)
    return [str(region) for region in found]


def _check(size_map, found, truth):
    for i in range(size_map.count):
        point = size_map.get_point(i)
        region = next(r for r in found if not r.terms or size_map.where_any(r.terms)[i])
        assert region.piece in truth(**point), (point, found)


def test_one_condition_separates_two_pieces():
    assert regions(lambda batch, time: {0} if time <= 20 else {1}, [["time <= 20"], ["time > 20"]]) == [
        "time > 20",
        "otherwise",
    ]


def test_a_guard_that_does_no_harm_is_not_asked():
    texts = regions(
        lambda batch, time: {0} if time % 8 else {1},
        [["time % 8 != 0", "batch != 3"], ["time % 8 == 0", "batch != 3"]],
    )
    assert texts == ["time % 8 == 0", "otherwise"]


def test_the_plainest_of_equal_conditions_is_shown():
    texts = regions(lambda batch, time: {int(time % 8 == 0)}, [["-time % 8 != 0"], ["-time % 8 == 0"]])
    assert texts == ["time % 8 == 0", "otherwise"]


def test_a_size_of_one_needs_no_guard_to_be_told_apart():
    assert regions(lambda batch, time: {int(time == 1)}, [[], ["time == 1"]])[-1] == "otherwise"


def test_two_dims_are_asked_together():
    texts = regions(
        lambda batch, time: {int(batch > 2 and time > 8)}, [["batch <= 2"], ["batch > 2", "time > 8"]], every=3
    )
    assert texts == ["batch > 2 and time > 8", "otherwise"]


def test_points_that_were_not_run_go_to_the_piece_whose_guards_hold():
    size_map = SizeMap(DOMAIN)
    served = [PointPieces({"batch": 2, "time": n}, frozenset({int(n > 40)})) for n in (3, 60)]
    found = find_regions(
        size_map, ["time <= 40"], served, [size_map.where_all([c]) for c in ("time <= 40", "time > 40")]
    )
    assert [str(region) for region in found] == ["time > 40", "otherwise"] or str(found[0]) == "time <= 40"


def test_the_neighbors_of_a_condition_are_found_on_both_sides():
    points = SizeMap(DOMAIN).find_borders("time <= 20", 1)
    assert {point["time"] for point in points} == {20, 21}


def test_a_point_of_a_large_domain_stays_on_the_map():
    size_map = SizeMap(Domain((Dim("a", 1, 5000), Dim("b", 1, 5000))), [{"a": 4321, "b": 17}])
    place = size_map.find_index({"a": 4321, "b": 17})
    assert not size_map.complete
    assert place is not None
    assert size_map.get_point(place) == {"a": 4321, "b": 17}
