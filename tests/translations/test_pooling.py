"""Adaptive pooling at sizes other than the example's, smaller than the cells too."""

from __future__ import annotations

import pytest
import torch
from ours import Inputs, Trial
from torch.nn import functional

FUNCTIONS = {
    "average of one dim": lambda x: functional.adaptive_avg_pool1d(x[:, 0], 3),
    "average": lambda x: functional.adaptive_avg_pool2d(x, (2, 3)),
    "average of doubles": lambda x: functional.adaptive_avg_pool2d(x.double(), 2),
    "average into a size": lambda x: functional.adaptive_avg_pool2d(x, (x.shape[2] // 2 + 1, 2)),
    "average of three dims": lambda x: functional.adaptive_avg_pool3d(x, (1, 2, 2)),
    "largest of one dim": lambda x: functional.adaptive_max_pool1d(x[:, 0], 3, return_indices=True),
    "largest": lambda x: functional.adaptive_max_pool2d(x, (3, 2), return_indices=True),
    "largest of all": lambda x: functional.adaptive_max_pool2d(x, 1),
    "largest of three dims": lambda x: functional.adaptive_max_pool3d(x, 2, return_indices=True),
}


def images(batch: int, height: int, width: int) -> Inputs:
    """Small whole numbers, so that some are equal."""
    generator = torch.Generator().manual_seed(batch + height + width)
    return (torch.randn(batch, 2, height, width, generator=generator).mul(2).round(),)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(FUNCTIONS, [images(2, 5, 7), images(1, 1, 1), images(3, 4, 3), images(2, 2, 9), images(2, 12, 11)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(trial: Trial, name: str) -> None:
    trial.check(name, tolerance=1e-6)
