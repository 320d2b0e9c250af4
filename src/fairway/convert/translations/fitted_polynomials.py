"""Polynomials of special functions, to the precision of a double.

`tools/fit_polynomials.py` makes `fitted.txt`: for each polynomial a line with its name, middle and half, then one line
for each coefficient from the lowest power up, for powers of (u - middle) / half.
"""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from fairway.convert.translations.polynomials import Polynomial

_FILE = Path(__file__).with_name("fitted.txt")


@functools.cache
def read_polynomials() -> dict[str, Polynomial]:
    polynomials: dict[str, Polynomial] = {}
    heads: list[list[str]] = []
    terms: list[list[float]] = []
    for line in _FILE.read_text().splitlines():
        if line.startswith(" "):
            terms[-1].append(float(line))
        else:
            heads.append(line.split())
            terms.append([])
    for (name, middle, half), powers in zip(heads, terms, strict=True):
        polynomials[name] = Polynomial(float(middle), float(half), tuple(powers))
    return polynomials


def evaluate(name: str, u: torch.Tensor) -> torch.Tensor:
    """Evaluate a polynomial by Horner's scheme."""
    polynomial = read_polynomials()[name]
    t = (u - polynomial.middle) / polynomial.half
    *lower, highest = polynomial.terms
    value = t * highest + lower.pop()
    while lower:
        value = value * t + lower.pop()
    return value
