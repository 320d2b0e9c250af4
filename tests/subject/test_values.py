"""Input values: legal, reproducible, and at the edges."""

from __future__ import annotations

import pytest
import torch

from fairway.model.dims import Point
from fairway.model.spec import DTYPES, MASKS, parse_input
from fairway.model.values import FLAVORS, LARGE_MAGNITUDE, UNDECLARED_BELOW, Flavor, bring_near, make_tensor, resemble

SEEDS = range(40)


def make(line: str, point: Point, seed: int = 1, flavor: Flavor = "normal") -> torch.Tensor:
    return make_tensor(parse_input(line), point, torch.Generator().manual_seed(seed), flavor)


def like(example: torch.Tensor, shape: tuple[int, ...], seed: int = 1, flavor: Flavor = "normal") -> torch.Tensor:
    return resemble(example, shape, torch.Generator().manual_seed(seed), flavor)


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_every_flavor(dtype: str, flavor: Flavor) -> None:
    tensor = make(f"x: {dtype}[b, 3]", {"b": 4}, flavor=flavor)
    assert (tensor.dtype, tuple(tensor.shape)) == (getattr(torch, dtype), (4, 3))


@pytest.mark.parametrize(
    "line", ["x: float32[b, 3]", "x: int64[b, 3] < 99", "x: bool[b, 3]", "x: bool[b, 3] = padding"]
)
def test_the_same_seed_gives_the_same_values_and_another_seed_others(line: str) -> None:
    assert torch.equal(make(line, {"b": 9}, 5), make(line, {"b": 9}, 5))
    assert any(not torch.equal(make(line, {"b": 9}, 5), make(line, {"b": 9}, seed)) for seed in (6, 7))


def test_making_values_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    make("x: float32[b, 3]", {"b": 4})
    make("mask: bool[b, 3] = padding", {"b": 4})
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("kind", MASKS)
def test_every_row_of_a_mask_keeps_a_real_element(kind: str, flavor: Flavor) -> None:
    for seed in SEEDS:
        mask = make(f"mask: bool[b, n] = {kind}", {"b": 5, "n": 6}, seed, flavor)
        real = mask if kind.startswith("keep") else ~mask
        assert real.any(dim=-1).all()


@pytest.mark.parametrize("kind", MASKS)
def test_masks_are_padded_on_one_side_only(kind: str) -> None:
    for seed in SEEDS:
        mask = make(f"mask: bool[b, n] = {kind}", {"b": 5, "n": 6}, seed)
        real = (mask if kind.startswith("keep") else ~mask).int()
        assert (real.diff(dim=-1).abs().sum(dim=-1) <= 1).all()


@pytest.mark.parametrize(
    ("kind", "sides"),
    [
        ("padding", {"left", "right"}),
        ("keep", {"left", "right"}),
        ("padding-left", {"left"}),
        ("keep-left-padded", {"left"}),
        ("padding-right", {"right"}),
        ("keep-right-padded", {"right"}),
    ],
)
def test_both_sides_of_padding_occur_unless_one_is_named(kind: str, sides: set[str]) -> None:
    seen = set()
    for seed in SEEDS:
        mask = make(f"mask: bool[b, n] = {kind}", {"b": 5, "n": 6}, seed)
        real = mask if kind.startswith("keep") else ~mask
        if not real[:, 0].all():
            seen.add("left")
        if not real[:, -1].all():
            seen.add("right")
    assert seen == sides


def test_a_mask_pads_nothing_at_least_and_all_but_one_at_most() -> None:
    assert make("m: bool[b, n] = keep", {"b": 3, "n": 5}, flavor="least").sum(-1).tolist() == [5, 5, 5]
    assert make("m: bool[b, n] = keep", {"b": 3, "n": 5}, flavor="most").sum(-1).tolist() == [1, 1, 1]


def test_a_mask_may_be_of_numbers() -> None:
    mask = make("m: int64[b, n] = keep", {"b": 3, "n": 5})
    assert mask.dtype == torch.int64
    assert set(mask.unique().tolist()) <= {0, 1}


@pytest.mark.parametrize("flavor", FLAVORS)
def test_declared_ranges_are_respected(flavor: Flavor) -> None:
    for seed in SEEDS:
        ids = make("x: int64[n] < 7", {"n": 50}, seed, flavor)
        assert (ids >= 0).all()
        assert (ids < 7).all()
        whole = make("x: int8[n] in -3..4", {"n": 50}, seed, flavor)
        assert (whole >= -3).all()
        assert (whole <= 4).all()
        real = make("x: float32[n] in 0.25..0.75", {"n": 50}, seed, flavor)
        assert (real >= 0.25).all()
        assert (real <= 0.75).all()
        lengths = make("x: int64[n] = lengths(time)", {"n": 50, "time": 6}, seed, flavor)
        assert (lengths >= 1).all()
        assert (lengths <= 6).all()


def test_the_ends_of_a_range_are_reached() -> None:
    assert make("x: int64[n] < 7", {"n": 3}, flavor="most").tolist() == [6, 6, 6]
    assert make("x: int64[n] in -2..7", {"n": 2}, flavor="least").tolist() == [-2, -2]
    assert make("x: float32[n] in 0.5..2", {"n": 2}, flavor="most").tolist() == [2.0, 2.0]
    drawn = make("x: int64[n] < 3", {"n": 200})
    assert set(drawn.tolist()) == {0, 1, 2}


def test_whole_numbers_without_a_limit_stay_small() -> None:
    drawn = make("x: int64[n]", {"n": 500})
    assert (int(drawn.min()), int(drawn.max())) == (0, UNDECLARED_BELOW - 1)


def test_large_values_are_large() -> None:
    assert make("x: float32[n]", {"n": 100}, flavor="large").abs().max() > 30


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize(
    "line", ["x: float32[n]", "m: bool[2, n] = padding", "l: int64[2] = lengths(n)", "i: int64[n] < 5"]
)
def test_a_size_of_zero_can_be_made(line: str, flavor: Flavor) -> None:
    tensor = make(line, {"n": 0}, flavor=flavor)
    assert tuple(tensor.shape) == parse_input(line).sizes({"n": 0})
    assert not line.startswith("l") or tensor.tolist() == [0, 0]


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize(
    "example",
    [
        torch.linspace(-2, 5, 12).reshape(3, 4),
        torch.tensor([1.5, 2.5]),
        torch.tensor([[3, 4], [9, 3]]),
        torch.tensor([True, False]),
        torch.tensor(7, dtype=torch.uint8),
    ],
    ids=["floats", "few floats", "ints", "bools", "scalar"],
)
def test_values_made_from_an_example_stay_within_it(example: torch.Tensor, flavor: Flavor) -> None:
    for seed in range(5):
        made = like(example, (6, 5), seed, flavor)
        assert (made.dtype, tuple(made.shape)) == (example.dtype, (6, 5))
        assert made.min() >= example.min()
        assert made.max() <= example.max()


def test_values_made_from_an_empty_example_are_zeros() -> None:
    assert like(torch.empty(0, 3), (2, 3)).tolist() == [[0.0] * 3] * 2


def test_values_made_from_an_example_differ_by_seed() -> None:
    example = torch.linspace(0, 1, 20)
    assert torch.equal(like(example, (9,), 3), like(example, (9,), 3))
    assert not torch.equal(like(example, (9,), 3), like(example, (9,), 4))


def test_mixed_values_hold_ordinary_and_edge_rows_and_elements() -> None:
    whole = make("x: int64[n, 8] < 100", {"n": 400}, flavor="mixed")
    rows = [set(row.tolist()) for row in whole]
    assert {0} in rows
    assert {99} in rows
    assert sum(len(row) > 4 for row in rows) > 100
    assert sum(0 in row and len(row) > 4 for row in rows) > 20


def test_mixed_floats_hold_zeros_and_far_values_of_both_signs() -> None:
    drawn = make("x: float32[n, 6]", {"n": 400}, flavor="mixed")
    assert (drawn == 0).all(-1).any()
    assert (drawn > 0.9 * LARGE_MAGNITUDE).all(-1).any()
    assert (drawn < -0.9 * LARGE_MAGNITUDE).all(-1).any()
    assert ((drawn == 0).any(-1) & (drawn.abs() > 0).any(-1)).any()


@pytest.mark.parametrize("kind", MASKS)
def test_mixed_masks_hold_rows_without_padding_and_rows_of_nearly_nothing_else(kind: str) -> None:
    mask = make(f"mask: bool[b, n] = {kind}", {"b": 200, "n": 30}, flavor="mixed")
    real = (mask if kind.startswith("keep") else ~mask).sum(-1)
    assert (real == 30).sum() > 25
    assert (real == 1).sum() > 15
    assert len(set(real.tolist())) > 10


def test_floats_without_a_range_have_far_ends() -> None:
    assert (make("x: float32[n]", {"n": 50}, flavor="most") >= 0.9 * LARGE_MAGNITUDE).all()
    assert (make("x: float32[n]", {"n": 50}, flavor="least") <= -0.9 * LARGE_MAGNITUDE).all()
    assert make("x: float32[n]", {"n": 50}, flavor="most").std() > 0


def test_large_values_reach_to_where_exp_leaves_float32():
    drawn = make("x: float32[n]", {"n": 40}, flavor="large")
    assert torch.isinf(torch.exp(drawn)).any()
    assert (torch.exp(drawn) == 0).any()
    assert (drawn.abs() < LARGE_MAGNITUDE).any()


def test_the_seed_counts_through_every_legal_value() -> None:
    ids = [make("x: int64[b, 2] < 7", {"b": 2}, seed, "same") for seed in range(7)]
    assert sorted(int(t[0, 0]) for t in ids) == list(range(7))
    assert all(len(t.unique()) == 1 for t in ids)
    masks = [make("m: bool[b, n] = keep", {"b": 2, "n": 5}, seed, "same") for seed in range(5)]
    assert sorted(int(m[0].sum()) for m in masks) == [1, 2, 3, 4, 5]
    lengths = [make("l: int64[b] = lengths(n)", {"b": 2, "n": 5}, seed, "same").tolist() for seed in range(5)]
    assert sorted(lengths) == [[n, n] for n in range(1, 6)]
    assert {bool(make("x: bool[b]", {"b": 1}, seed, "same")) for seed in range(2)} == {True, False}


def test_values_are_brought_near_a_threshold_on_both_sides_and_stay_legal() -> None:
    line = "x: float32[n] in -1..0.5"
    moved = bring_near(parse_input(line), make(line, {"n": 4000}), -0.25, 1)
    off = moved + 0.25
    for close in (1e-4, 1e-3, 1e-2):
        assert ((off > 0) & (off < close)).any()
        assert ((off < 0) & (off > -close)).any()
    assert 0.4 < (off.abs() < 0.026).float().mean() < 0.6
    at_the_end = bring_near(parse_input(line), make(line, {"n": 4000}), 0.5, 1)
    assert at_the_end.max() <= 0.5


@pytest.mark.parametrize("line", ["x: float32[n] in 1..2", "i: int64[n] < 5", "m: bool[2, n] = padding"])
def test_values_are_left_alone_where_the_threshold_is_not_legal(line: str) -> None:
    tensor = make(line, {"n": 30})
    assert torch.equal(bring_near(parse_input(line), tensor, 0.5, 1), tensor)
