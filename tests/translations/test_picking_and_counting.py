"""Rolling, repeating, picking out, counting and spreading."""

from __future__ import annotations

import pytest
import torch
from ours import Inputs, Trial

INF, NAN = float("inf"), float("nan")

PICKING = {
    "roll": lambda x, i: torch.roll(x, 2, -1),
    "squeeze of two": lambda x, i: torch.stack([x, x], -1).squeeze(-1),
    "squeeze of one": lambda x, i: x[None].squeeze(0),
    "roll back": lambda x, i: torch.roll(x, (-1, 3), (0, 1)),
    "roll by half": lambda x, i: torch.roll(x, x.shape[1] // 2, 1),
    "roll the whole": lambda x, i: torch.roll(x, x.shape[0]),
    "repeats as told": lambda x, i: torch.repeat_interleave(x, i[0], 1),
    "repeats with the size": lambda x, i: torch.repeat_interleave(
        x[:1].mT, torch.ones_like(i[0]), 0, output_size=x.shape[1]
    ),
    "repeated places": lambda x, i: torch.repeat_interleave(i[0].int()),
    "masked_select": lambda x, i: torch.masked_select(x, x > 0),
    "masked_select spreads": lambda x, i: torch.masked_select(x, i[:1] > 0),
    "masked_select of bools": lambda x, i: torch.masked_select(x > 1, x > 0),
    "nonzero_static": lambda x, i: torch.nonzero_static(x > 0, size=4),
    "nonzero_static of numbers": lambda x, i: torch.nonzero_static(i, size=9, fill_value=7),
}
COUNTING = {
    "bincount": lambda x, i: torch.bincount(i.flatten()),
    "bincount to a length": lambda x, i: torch.bincount(i.flatten().int(), minlength=9),
    "bincount with weights": lambda x, i: torch.bincount(i.flatten(), x.nan_to_num(0, 0, 0).flatten(), minlength=2),
    "bincount with doubles": lambda x, i: torch.bincount(i.flatten(), i.flatten()),
    "bincount to a size": lambda x, i: torch.bincount(i.flatten(), minlength=x.shape[1]),
    "runs": lambda x, i: torch.unique_consecutive(i[0], dim=-1),
    "runs counted": lambda x, i: torch.unique_consecutive(x[0], return_inverse=True, return_counts=True, dim=-1),
    "no runs": lambda x, i: torch.unique_consecutive(i[0, :0], return_inverse=True, return_counts=True, dim=-1),
    "histc": lambda x, i: torch.histc(x, 5, -1, 1),
    "histc of the data's range": lambda x, i: torch.histc(x.nan_to_num(0, 2, -2), 4),
    "histc of equal data": lambda x, i: torch.histc(torch.full_like(x, 3.0), 4),
    "histc of doubles": lambda x, i: torch.histc(x.double(), 3, -2, 2),
    "var": lambda x, i: torch.var(x),
    "var of a dim": lambda x, i: torch.var(x, 1, correction=2, keepdim=True),
    "var of dims": lambda x, i: torch.var(x, (0, 1), correction=0),
    "var of no dim told": lambda x, i: torch.var(x, dim=None, correction=1.5, keepdim=True),
    "var of half": lambda x, i: torch.var(x.half(), 0) * 1,  # torch 2.13 hands a half reduction out as float32
    "var of one number": lambda x, i: torch.var(x[0, 0], unbiased=False),
    "std": lambda x, i: torch.std(x, 0),
    "std of doubles": lambda x, i: torch.std(x.double(), 1, correction=3),
    "var_mean": lambda x, i: torch.var_mean(x.clamp(max=9), 1),  # PyTorch's mean of infinity is NaN here
    "std_mean": lambda x, i: torch.std_mean(x.clamp(max=9)),
}


def rows(batch: int, length: int) -> Inputs:
    generator = torch.Generator().manual_seed(batch + length)
    return torch.randn(batch, length, generator=generator), torch.randint(0, 4, (batch, length), generator=generator)


ODD = torch.tensor([[INF, 1.0, -1.0], [NAN, 0.5, 0.0]]), torch.tensor([[0, 0, 3], [1, 0, 0]])


@pytest.fixture(scope="module")
def picking() -> Trial:
    return Trial(PICKING, [rows(3, 5), rows(1, 1), rows(2, 8), rows(2, 0), ODD])


@pytest.fixture(scope="module")
def counting() -> Trial:
    return Trial(COUNTING, [rows(3, 5), rows(1, 1), rows(2, 8), ODD])


@pytest.mark.parametrize("name", PICKING)
def test_what_is_picked_is_what_pytorch_picks(picking: Trial, name: str) -> None:
    picking.check(name, tolerance=0)


@pytest.mark.parametrize("name", COUNTING)
def test_what_is_counted_is_what_pytorch_counts(counting: Trial, name: str) -> None:
    counting.check(name, tolerance=1e-3 if "half" in name else 1e-6)
