"""Places in sorted rows, medians, k-th values and modes. An index is right where it leads to the value.

Nothing is asked of empty rows: onnxruntime 1.31 answers every reduction of an empty tensor with the tensor's own shape.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from ours import Inputs, Trial

INF, NAN = float("inf"), float("nan")
EDGES = torch.tensor([-1.0, 0.0, 0.0, 0.5])


def led(pick: Callable[..., tuple[torch.Tensor, torch.Tensor]], dim: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The value, and what the index leads to."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        value, place = pick(x)
        return value, x.gather(dim, place.unsqueeze(dim)).squeeze(dim), place.new_zeros(place.shape)

    return function


PLACES = {
    "rows in rows": lambda x, y: torch.searchsorted(x.sort(-1).values, y),
    "to the right": lambda x, y: torch.searchsorted(x.sort(-1).values, y, right=True),
    "by side, in int32": lambda x, y: torch.searchsorted(EDGES, y, side="right", out_int32=True),
    "with a sorter": lambda x, y: torch.searchsorted(EDGES.flip(0), y, sorter=torch.tensor([3, 2, 1, 0])),
    "one number": lambda x, y: torch.searchsorted(EDGES, 0.0),
    "whole numbers": lambda x, y: torch.searchsorted(torch.tensor([-1, 0, 2]), y.long(), right=True),
    "bytes": lambda x, y: torch.searchsorted(torch.tensor([0, 1], dtype=torch.uint8), y.abs().byte()),
    "doubles": lambda x, y: torch.searchsorted(EDGES.double(), y.double()),
    "bucketize": lambda x, y: torch.bucketize(x, EDGES),
    "bucketize to the right": lambda x, y: torch.bucketize(x, EDGES, right=True),
    "bucketize half": lambda x, y: torch.bucketize(x.half(), EDGES.half()),
    "bucketize by the row itself": lambda x, y: torch.bucketize(x, x[0].sort().values),
    "bucketize one number": lambda x, y: torch.bucketize(0.2, EDGES),
}
SORTS = {
    "places": lambda x, y: torch.argsort(x, dim=-1, stable=True),
    "nan last": lambda x, y: torch.argsort(torch.where(x > 1, NAN, x), stable=True),
    "and first downwards": lambda x, y: torch.argsort(torch.where(x > 1, NAN, x), stable=True, descending=True),
    "downwards": lambda x, y: torch.sort(x, dim=0, stable=True, descending=True),
    "whole numbers": lambda x, y: torch.sort(x.long(), stable=True),
    "bools": lambda x, y: torch.sort(x > 0, stable=True),
    "bytes": lambda x, y: torch.sort(x.abs().byte(), dim=1, stable=True, descending=True),
    "one number": lambda x, y: torch.sort(x.sum(), stable=True),
}
PICKS = {
    "kthvalue": led(lambda x: torch.kthvalue(x, 1), -1),
    "second of a column": led(lambda x: torch.kthvalue(x, x.shape[0], 0), 0),
    "kthvalue of whole numbers": lambda x, y: torch.kthvalue(x.nan_to_num(3).clamp(-9, 9).int(), 1, 1, keepdim=True)[0],
    "median": lambda x, y: torch.median(x),
    "median of whole numbers": lambda x, y: torch.median(x.nan_to_num(3).clamp(-9, 9).long()),
    "median of a dim": led(lambda x: torch.median(x, 1), 1),
    "median of the first dim, kept": lambda x, y: torch.median(x, 0, keepdim=True)[0],
    "nanmedian": lambda x, y: torch.nanmedian(x),
    "nanmedian of a dim": lambda x, y: torch.nanmedian(x, 1)[0],
    "nanmedian of doubles": lambda x, y: torch.nanmedian(x.double(), 0)[0],
    "mode": led(lambda x: torch.mode(x.nan_to_num(3)), -1),
    "mode of bytes": lambda x, y: torch.mode(x.nan_to_num(3).clamp(-9, 9).abs().byte(), 0)[0],
    "mode kept": lambda x, y: torch.mode(x.nan_to_num(3).round(), 1, keepdim=True)[0],
}


def rows(batch: int, length: int, asked: int) -> Inputs:
    """Halves, so that some are equal."""
    generator = torch.Generator().manual_seed(batch + length)
    return tuple(torch.randn(batch, n, generator=generator).mul(3).round() / 2 for n in (length, asked))


@pytest.fixture(scope="module")
def places() -> Trial:
    points = [rows(3, 5, 4), rows(1, 1, 1), rows(2, 7, 3), rows(4, 30, 2)]
    odd = (torch.tensor([[1.0, 2.0, INF], [-INF, 0.0, 0.0]]), torch.tensor([[NAN, INF], [-INF, 0.0]]))
    return Trial(PLACES, [*points, odd])


@pytest.fixture(scope="module")
def picks() -> Trial:
    odd = torch.tensor([[1.0, NAN, INF, 2.0], [-INF, 0.0, 0.0, 7.0], [NAN, NAN, NAN, NAN], [NAN, 2.0, 1.0, 0.5]])
    return Trial(PICKS, [rows(3, 5, 1), rows(1, 1, 1), rows(2, 8, 1), rows(6, 21, 1), (odd, odd[:, :1])])


@pytest.mark.parametrize("name", PLACES)
def test_a_place_is_the_one_that_pytorch_finds(places: Trial, name: str) -> None:
    places.check(name, tolerance=0)


@pytest.mark.parametrize("name", PICKS)
def test_a_pick_is_pytorchs(picks: Trial, name: str) -> None:
    picks.check(name, tolerance=0)


@pytest.fixture(scope="module")
def sorts() -> Trial:
    return Trial(SORTS, [rows(3, 5, 1), rows(1, 1, 1), rows(4, 30, 1)])


@pytest.mark.parametrize("name", SORTS)
def test_equal_elements_stay_in_order(sorts: Trial, name: str) -> None:
    sorts.check(name, tolerance=0)
