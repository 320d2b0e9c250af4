"""Running products, extremes and log-sums, also over NaN, infinities, ties and nothing."""

from __future__ import annotations

import pytest
import torch
from ours import Trial

INF, NAN = float("inf"), float("nan")


def rows(batch: int, length: int) -> tuple[torch.Tensor]:
    """Ordinary numbers with ties."""
    return (torch.randn(batch, length, generator=torch.Generator().manual_seed(batch + length)).mul(4).round() / 2,)


FUNCTIONS = {
    "cumsum": lambda x: torch.cumsum(x, -1),
    "cumsum over small and large": lambda x: torch.cumsum(torch.cat([x + 2**24, x * 0.3], 1), 1) / 2**24,
    "cumsum as double": lambda x: torch.cumsum(x, 0, dtype=torch.float64),
    "cumsum of whole numbers as float": lambda x: torch.cumsum(x.long(), 0, dtype=torch.float32),
    "cumsum of one number": lambda x: torch.cumsum(torch.full((), 3.0), 0),
    "cumprod": lambda x: torch.cumprod(x, -1),
    "cumprod of the first dim": lambda x: torch.cumprod(x, 0),
    "cumprod of whole numbers": lambda x: torch.cumprod(x.int(), 1),
    "cumprod of bools": lambda x: torch.cumprod(x > 0, 1),
    "cumprod as double": lambda x: torch.cumprod(x, 1, dtype=torch.float64),
    "cumprod of one number": lambda x: torch.cumprod(torch.full((), 3.0), 0),
    "cummax": lambda x: tuple(torch.cummax(x, -1)),
    "cummax of the first dim": lambda x: tuple(torch.cummax(x, 0)),
    "cummax of whole numbers": lambda x: tuple(torch.cummax(x.long(), 1)),
    "cummax of bytes": lambda x: tuple(torch.cummax(x.abs().byte(), 1)),
    "cummax of half": lambda x: tuple(torch.cummax(x.half(), 1)),
    "cummin": lambda x: tuple(torch.cummin(x, -1)),
    "cummin of whole numbers": lambda x: tuple(torch.cummin(x.int(), 0)),
    "cummin of doubles": lambda x: tuple(torch.cummin(x.double(), 1)),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
    "logcumsumexp far apart": lambda x: torch.logcumsumexp(x * 100, 0),
    "logcumsumexp of doubles": lambda x: torch.logcumsumexp(x.double() * 7, 1),
}

EDGES = torch.tensor([[-INF, -INF, 1.0, 1.0, INF, -INF], [0.0, -0.0, NAN, 5.0, NAN, INF], [-200.0, 0, 1, INF, INF, 3]])


@pytest.fixture(scope="module")
def trial() -> Trial:
    sizes = ((3, 5), (1, 1), (2, 7), (4, 40), (3, 0), (0, 3))
    return Trial(FUNCTIONS, [*(rows(*one) for one in sizes), (EDGES,)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(trial: Trial, name: str) -> None:
    trial.check(name, tolerance=1e-6)
