"""Special functions near their poles, ends and zeros, and signs of zero and NaN."""

from __future__ import annotations

import pytest
import torch
from ours import Inputs, Trial

INF, NAN = float("inf"), float("nan")


def whole(x: torch.Tensor) -> torch.Tensor:
    return x.nan_to_num(0, 0, 0).clamp(-9, 9).long()


FUNCTIONS = {
    "numbers in double": lambda x, y: x.double() * 0.1 + 1e200,
    "erfinv": lambda x, y: torch.erfinv(x / 16),
    "erfinv at the ends": lambda x, y: torch.erfinv(x.clamp(-1, 1)),
    "erfinv outside": lambda x, y: torch.erfinv(x * 2),
    "erfinv of doubles": lambda x, y: torch.erfinv(x.double() / 16),
    "erfinv of whole numbers": lambda x, y: torch.erfinv(whole(x).clamp(-1, 1)),
    "ndtri": lambda x, y: torch.special.ndtri(x.abs() / 16),
    "ndtri of little": lambda x, y: torch.special.ndtri(torch.exp(-x.abs() * 8)),
    "lgamma": lambda x, y: torch.lgamma(x),
    "lgamma up": lambda x, y: torch.lgamma(x.abs() * 1000),
    "lgamma of doubles": lambda x, y: torch.lgamma(x.double()),
    "digamma": lambda x, y: torch.digamma(x),
    "digamma of doubles": lambda x, y: torch.digamma(x.double().abs() + 0.1),
    "hypot": lambda x, y: torch.hypot(x, y),
    "hypot of large doubles": lambda x, y: torch.hypot(x.double() * 1e200, y.double() * 1e200),
    "copysign": lambda x, y: torch.copysign(x, y),
    "copysign of whole numbers": lambda x, y: torch.copysign(whole(x), whole(y)),
    "copysign of a number": lambda x, y: (torch.copysign(x, -0.0), torch.copysign(x, 2)),
    "log of a sigmoid": lambda x, y: torch.nn.functional.logsigmoid(x * 30),
    "log of a sigmoid in double": lambda x, y: torch.nn.functional.logsigmoid(x.double()),
    "angles": lambda x, y: (torch.atan2(x, y), torch.atan2(y, x), torch.atan2(x * 0, -x.abs())),
    "angles of whole numbers": lambda x, y: torch.atan2(whole(x), whole(y)),
    "fmax": lambda x, y: (torch.fmax(x, y), torch.fmax(x.double(), y.double())),
    "fmin": lambda x, y: (torch.fmin(x, y), torch.fmin(whole(x), whole(y))),
}


def rows(batch: int, length: int) -> Inputs:
    generator = torch.Generator().manual_seed(batch + length)
    return tuple(torch.randn(batch, length, generator=generator) * 3 for _ in range(2))


ODD = (
    torch.tensor([[1.0, 2.0, 0.0, -0.0, INF, -INF, NAN, 3.0, 1e-30], [-1, -2.5, 0.5, 1e30, 1.4616, -0.0, 0, NAN, -7]]),
    torch.tensor([[NAN, -0.0, 0.0, -0.0, 3.0, NAN, INF, -INF, -1e-30], [0, 4, -0.5, 1e30, 1, -1, NAN, NAN, -0.0]]),
)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(FUNCTIONS, [rows(3, 5), rows(1, 1), rows(2, 0), rows(8, 30), ODD])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(trial: Trial, name: str) -> None:
    trial.check(name, tolerance=1e-12 if "double" in name else 3e-6)
