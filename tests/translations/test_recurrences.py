"""Orthogonal polynomials, common divisors, zeta, polygamma and the incomplete gamma functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from ours import Inputs, Trial

from fairway.convert.translations.recurrences import FAMILIES


def polynomial(name: str, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    function: Any = getattr(torch.special, name)
    degree = (y * 3).round().abs() - 1
    return function(x, degree), function(x, 4), function(0.3, degree)


def whole(x: torch.Tensor) -> torch.Tensor:
    return (x * 20).long()


FIBONACCI = (7540113804746346429, 4660046610375530309)
"""The largest two below 2⁶³, for which Euclid's algorithm takes the most steps."""

FUNCTIONS = {
    **{name: partial(polynomial, name) for name in FAMILIES},
    "gcd": lambda x, y: (torch.gcd(whole(x), whole(y)), torch.gcd(whole(x).int(), whole(y).int())),
    "lcm": lambda x, y: torch.lcm(whole(x), whole(y)),
    "gcd of Fibonacci numbers": lambda x, y: torch.gcd(
        whole(x) * 0 + 7540113804746346429, whole(y) * 0 + 4660046610375530309
    ),
    "zeta": lambda x, y: torch.special.zeta(x.abs() + 1.1, y.abs()),
    "zeta below zero": lambda x, y: torch.special.zeta(x.round(), y * 5),
    "zeta of numbers": lambda x, y: (torch.special.zeta(2.5, y.abs()), torch.special.zeta(x, 3.0)),
    "polygamma": lambda x, y: tuple(torch.polygamma(n, x.abs() + 0.1) for n in (0, 1, 2, 4)),
    "igamma": lambda x, y: torch.special.gammainc(x.abs() * 5, y.abs() * 5),
    "igammac": lambda x, y: torch.special.gammaincc(x.abs() * 5, y.abs() * 5),
    "igamma of large numbers": lambda x, y: torch.special.gammainc(x.abs() * 300, x.abs() * 300 + y * 10),
}


def rows(batch: int, length: int) -> Inputs:
    generator = torch.Generator().manual_seed(batch + length)
    return tuple(torch.randn(batch, length, generator=generator) for _ in range(2))


ODD = (
    torch.tensor([[0.0, 0.0, 1.0, float("inf"), float("inf"), 2.0, -1.0, float("nan")]]),
    torch.tensor([[0.0, 1.0, 0.0, 2.0, float("inf"), float("inf"), 2.0, 1.0]]),
)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(FUNCTIONS, [rows(3, 5), rows(1, 1), rows(8, 30)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(trial: Trial, name: str) -> None:
    trial.check(name, tolerance=2e-4 if "large" in name else 2e-5)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_the_ends_of_the_incomplete_gamma_functions(name: str) -> None:
    function: Any = getattr(torch.special, name)
    Trial({"": lambda a, x: function(a, x)}, [ODD]).check("", tolerance=1e-6)
