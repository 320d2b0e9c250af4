"""Distances between rows, cross entropy in its forms, windows."""

from __future__ import annotations

import pytest
import torch
from ours import Inputs, Trial
from torch.nn import functional

WEIGHT = torch.tensor([0.5, 2.0, 1.0, 0.1])

FUNCTIONS = {
    "cdist": lambda x, y: torch.cdist(x, y),
    "cdist by batches": lambda x, y: torch.cdist(x[None], torch.stack([y, y * 2]), p=1.5),
    "cdist of doubles": lambda x, y: torch.cdist(x.double(), y.double()),
    **{f"cdist, p={p}": lambda x, y, p=p: torch.cdist(x, y, p=p) for p in (0.0, 1.0, 3.0, float("inf"))},
    "pdist": lambda x, y: torch.pdist(x),
    "pdist, p=1": lambda x, y: torch.pdist(x, p=1.0),
    "entropy": lambda x, y: functional.cross_entropy(x, x.argmax(1)),
    "smoothed": lambda x, y: functional.cross_entropy(x, x.argmax(1), label_smoothing=0.2),
    "weighed": lambda x, y: functional.cross_entropy(x, x.argmax(1), WEIGHT, label_smoothing=0.1),
    "summed, one class ignored": lambda x, y: functional.cross_entropy(x, x.argmax(1), ignore_index=1, reduction="sum"),
    "each": lambda x, y: functional.cross_entropy(x, x.argmin(1), WEIGHT, reduction="none"),
    "ignored and smoothed": lambda x, y: functional.cross_entropy(
        x, x.argmax(1) - 1, ignore_index=-1, label_smoothing=0.3
    ),
    "probabilities": lambda x, y: functional.cross_entropy(x, x.softmax(1), WEIGHT, label_smoothing=0.1),
    "three dims": lambda x, y: functional.cross_entropy(x[..., None], x.argmax(1)[:, None], label_smoothing=0.1),
    "window": lambda x, y: x[:1] + torch.hamming_window(4),
    "window of doubles": lambda x, y: x[:1] + torch.hamming_window(4, periodic=False, dtype=torch.float64),
    "window as told": lambda x, y: x[:1] + torch.hamming_window(4, False, 0.5, 0.25),
}


def rows(first: int, second: int) -> Inputs:
    generator = torch.Generator().manual_seed(first + second)
    return tuple(torch.randn(n, 4, generator=generator) for n in (first, second))


@pytest.fixture(scope="module")
def trial() -> Trial:
    same = torch.ones(2, 4), torch.cat([torch.ones(1, 4), torch.zeros(2, 4)])
    return Trial(FUNCTIONS, [rows(3, 5), rows(2, 1), rows(9, 3), rows(40, 30), same])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(trial: Trial, name: str) -> None:
    trial.check(name, tolerance=2e-5)
