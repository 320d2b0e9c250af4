"""Every reduction of scatter_reduce, scatter and index_reduce, with and without what was there before."""

from __future__ import annotations

import pytest
import torch
from ours import Inputs, Trial

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
BASE = torch.tensor([2.0, -1.0, 3.0, 0.5])


def scattered(reduce: str, include: bool, dtype: torch.dtype):  # type: ignore[no-untyped-def]
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        base = BASE.mul(4).to(dtype).expand(x.shape[0], 4)
        return base.scatter_reduce(1, i, x.mul(9).to(dtype), reduce, include_self=include)

    return function


def reduced(reduce: str, include: bool, dim: int, dtype: torch.dtype):  # type: ignore[no-untyped-def]
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        source = x.mul(9).to(dtype) if dim else x.mul(9).to(dtype).mT
        base = BASE.mul(4).to(dtype).expand(x.shape[0], 4)
        return (base if dim else base.mT).index_reduce(dim, i[0], source, reduce, include_self=include)

    return function


FUNCTIONS = {
    **{
        f"scatter {reduce}, {'with' if include else 'without'} self, {dtype}": scattered(reduce, include, dtype)
        for reduce in REDUCTIONS
        for include in (True, False)
        for dtype in (torch.float32, torch.int64)
        if dtype is torch.float32 or reduce in ("mean", "amax")
    },
    **{
        f"index {reduce}, {'with' if include else 'without'} self, dim {dim}": reduced(
            reduce, include, dim, torch.float32
        )
        for reduce in REDUCTIONS[1:]
        for include in (True, False)
        for dim in (int(include),)
    },
    "index mean of int32": reduced("mean", True, 1, torch.int32),
    "scatter amax of int32": scattered("amax", False, torch.int32),
    "scatter mean of doubles": scattered("mean", False, torch.float64),
    "scatter add": lambda x, i: torch.ones(x.shape[0], 4).scatter(1, i, x, reduce="add"),
    "scatter multiply": lambda x, i: torch.ones(x.shape[0], 4).scatter(1, i, x, reduce="multiply"),
    "scatter a number": lambda x, i: torch.ones(x.shape[0], 4).scatter(1, i, 2.5, reduce="multiply"),
    "into one number": lambda x, i: torch.tensor(2.0).scatter_reduce(0, torch.tensor(0), x[0, 0], "mean"),
}


def rows(batch: int, length: int) -> Inputs:
    generator = torch.Generator().manual_seed(batch + length)
    return torch.randn(batch, length, generator=generator), torch.randint(0, 4, (batch, length), generator=generator)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(FUNCTIONS, [rows(3, 5), rows(1, 1), rows(2, 7), rows(5, 30)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(trial: Trial, name: str) -> None:
    trial.check(name, tolerance=1e-5)
