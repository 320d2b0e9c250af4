"""What equal blocks are handed tells whether they may be stamped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.weights.nets import Tower
from torch import nn

from fairway.weights.alike import called_alike
from fairway.weights.repeats import Repeat

Given = Callable[[int, torch.Tensor, torch.Tensor], tuple[object, ...]]


class Block(nn.Module):
    def forward(self, x: torch.Tensor, *others: object) -> torch.Tensor:
        return x * 2


class Masked(nn.Module):
    """Blocks that are handed what `given` says beside the one before them."""

    def __init__(self, given: Given) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(8))
        self.given = given

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = x + 1, x + 2
        for i, block in enumerate(self.blocks):
            x = block(x, *self.given(i, one, other))
        return x


RUN = (Repeat("blocks", 0, 8),)
ONE, OTHER = np.arange(2), np.arange(3)


@pytest.mark.parametrize(
    ("given", "alike"),
    [
        (lambda i, one, other: (one,), True),
        (lambda i, one, other: (other if i == 0 else one,), True),  # the first is captured on its own
        (lambda i, one, other: (one + i,), True),
        (lambda i, one, other: (i, 0.5), True),
        (lambda i, one, other: (OTHER if i == 5 else ONE,), False),
        (lambda i, one, other: (i % 2 == 0,), False),
        (lambda i, one, other: (other if i == 5 else one,), False),
        (lambda i, one, other: (other if i % 2 else one,), False),
        (lambda i, one, other: (None if i == 5 else one,), False),
        (lambda i, one, other: (one, other) if i == 5 else (one,), False),
    ],
    ids=[
        "shared", "first apart", "each its own", "numbers", "arrays", "flags", "one apart", "in turns", "one without",
        "one with more",
    ],
)
def test_blocks_that_share_what_others_are_not_handed_are_not_alike(given: Given, alike: bool) -> None:
    model = Masked(given)
    assert called_alike(model, RUN, lambda: model(torch.ones(2))) == (RUN if alike else ())


def test_where_the_model_cannot_run_the_judge_decides() -> None:
    model = Tower()
    assert called_alike(model, RUN, lambda: model(torch.ones(2, 3))) == RUN
