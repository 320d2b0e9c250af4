"""Input values: legal, reproducible, and at the edges."""

from __future__ import annotations

import pytest
import torch

from fairway.subject.dims import Point
from fairway.subject.spec import DTYPES, MASKS, parse_input
from fairway.subject.values import FLAVOURS, UNDECLARED_BELOW, Flavour, make_tensor, resemble

SEEDS = range(40)


def make(line: str, point: Point, seed: int = 1, flavour: Flavour = "normal") -> torch.Tensor:
    return make_tensor(parse_input(line), point, torch.Generator().manual_seed(seed), flavour)


def like(example: torch.Tensor, shape: tuple[int, ...], seed: int = 1, flavour: Flavour = "normal") -> torch.Tensor:
    return resemble(example, shape, torch.Generator().manual_seed(seed), flavour)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_every_flavour(dtype: str, flavour: Flavour) -> None:
    tensor = make(f"x: {dtype}[b, 3]", {"b": 4}, flavour=flavour)
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


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", MASKS)
def test_every_row_of_a_mask_keeps_a_real_element(kind: str, flavour: Flavour) -> None:
    for seed in SEEDS:
        mask = make(f"mask: bool[b, n] = {kind}", {"b": 5, "n": 6}, seed, flavour)
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
    assert make("m: bool[b, n] = keep", {"b": 3, "n": 5}, flavour="least").sum(-1).tolist() == [5, 5, 5]
    assert make("m: bool[b, n] = keep", {"b": 3, "n": 5}, flavour="most").sum(-1).tolist() == [1, 1, 1]


def test_a_mask_may_be_of_numbers() -> None:
    mask = make("m: int64[b, n] = keep", {"b": 3, "n": 5})
    assert mask.dtype == torch.int64
    assert set(mask.unique().tolist()) <= {0, 1}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_declared_ranges_are_respected(flavour: Flavour) -> None:
    for seed in SEEDS:
        ids = make("x: int64[n] < 7", {"n": 50}, seed, flavour)
        assert (ids >= 0).all()
        assert (ids < 7).all()
        whole = make("x: int8[n] in -3..4", {"n": 50}, seed, flavour)
        assert (whole >= -3).all()
        assert (whole <= 4).all()
        real = make("x: float32[n] in 0.25..0.75", {"n": 50}, seed, flavour)
        assert (real >= 0.25).all()
        assert (real <= 0.75).all()
        lengths = make("x: int64[n] = lengths(time)", {"n": 50, "time": 6}, seed, flavour)
        assert (lengths >= 1).all()
        assert (lengths <= 6).all()


def test_the_ends_of_a_range_are_reached() -> None:
    assert make("x: int64[n] < 7", {"n": 3}, flavour="most").tolist() == [6, 6, 6]
    assert make("x: int64[n] in -2..7", {"n": 2}, flavour="least").tolist() == [-2, -2]
    assert make("x: float32[n] in 0.5..2", {"n": 2}, flavour="most").tolist() == [2.0, 2.0]
    drawn = make("x: int64[n] < 3", {"n": 200})
    assert set(drawn.tolist()) == {0, 1, 2}


def test_whole_numbers_without_a_limit_stay_small() -> None:
    drawn = make("x: int64[n]", {"n": 500})
    assert (int(drawn.min()), int(drawn.max())) == (0, UNDECLARED_BELOW - 1)


def test_large_values_are_large() -> None:
    assert make("x: float32[n]", {"n": 100}, flavour="large").abs().max() > 30


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    "line", ["x: float32[n]", "m: bool[2, n] = padding", "l: int64[2] = lengths(n)", "i: int64[n] < 5"]
)
def test_a_size_of_zero_can_be_made(line: str, flavour: Flavour) -> None:
    tensor = make(line, {"n": 0}, flavour=flavour)
    assert tuple(tensor.shape) == parse_input(line).sizes({"n": 0})
    assert not line.startswith("l") or tensor.tolist() == [0, 0]


@pytest.mark.parametrize("flavour", FLAVOURS)
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
def test_values_made_from_an_example_stay_within_it(example: torch.Tensor, flavour: Flavour) -> None:
    for seed in range(5):
        made = like(example, (6, 5), seed, flavour)
        assert (made.dtype, tuple(made.shape)) == (example.dtype, (6, 5))
        assert made.min() >= example.min()
        assert made.max() <= example.max()


def test_values_made_from_an_empty_example_are_zeros() -> None:
    assert like(torch.empty(0, 3), (2, 3)).tolist() == [[0.0] * 3] * 2


def test_values_made_from_an_example_differ_by_seed() -> None:
    example = torch.linspace(0, 1, 20)
    assert torch.equal(like(example, (9,), 3), like(example, (9,), 3))
    assert not torch.equal(like(example, (9,), 3), like(example, (9,), 4))
