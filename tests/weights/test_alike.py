"""Equal blocks may be stamped only if they are called alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.weights.nets import Tower
from torch import nn

from fairway.convert.blocks.equal_calls import select_uniform_repeats
from fairway.convert.blocks.repeats import Repeat

Given = Callable[[int, torch.Tensor, torch.Tensor], tuple[object, ...]]


class Block(nn.Module):
    def forward(self, x: torch.Tensor, *others: object) -> torch.Tensor:
        return x * 2


class Masked(nn.Module):
    """Blocks that are handed what `given` says beside the one before them."""

    def __init__(self, given: Given, count: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))
        self.given = given

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = x + 1, x + 2
        for i, block in enumerate(self.blocks):
            x = block(x, *self.given(i, one, other))
        return x


RUN = (Repeat("blocks", 0, 8),)
ONE, OTHER = np.arange(2), np.arange(3)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (lambda i, one, other: (one,), 2),
        (lambda i, one, other: (other if i == 0 else one,), 3),
        (lambda i, one, other: (None if i == 0 else one,), 3),
        (lambda i, one, other: () if i == 0 else (one,), 3),
        (lambda i, one, other: (i == 0,), 3),
        (lambda i, one, other: (max(i, 1),), 3),
        (lambda i, one, other: (one + i,), 2),
        (lambda i, one, other: (i, 0.5), 2),
        (lambda i, one, other: (OTHER if i == 5 else ONE,), None),
        (lambda i, one, other: (i % 2 == 0,), None),
        (lambda i, one, other: (other if i == 5 else one,), None),
        (lambda i, one, other: (other if i % 2 else one,), None),
        (lambda i, one, other: (None if i == 5 else one,), None),
        (lambda i, one, other: (one, other) if i == 5 else (one,), None),
    ],
    ids=[
        "shared",
        "first apart",
        "first without",
        "first with less",
        "first with a flag",
        "first two share",
        "each its own",
        "numbers",
        "arrays",
        "flags",
        "one apart",
        "in turns",
        "one without",
        "one with more",
    ],
)
def test_blocks_that_share_what_others_are_not_handed_are_not_alike(given: Given, kept: int | None) -> None:
    model = Masked(given)
    left = select_uniform_repeats(model, RUN, lambda: model(torch.ones(2)))
    assert left == (() if kept is None else (replace(RUN[0], kept=kept),))


def test_the_model_is_afterwards_what_it_was() -> None:
    model = Tower().eval()
    x = torch.randn(1, 2, 64)
    before = model(x)
    select_uniform_repeats(model, RUN, lambda: model(x))
    assert torch.equal(model(x), before)
    assert not any("forward" in vars(block) for block in model.blocks)


def test_what_the_first_block_makes_for_all_takes_three_blocks_to_tell() -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor, made: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, x + 1

    class Biased(nn.Module):
        def __init__(self, handed_on: bool) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Pair() for _ in range(8))
            self.handed_on = handed_on

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = x
            for i, block in enumerate(self.blocks):
                x, other = block(x, made)
                made = other if self.handed_on or i == 0 else made
            return x

    for handed_on, kept in ((True, 2), (False, 3)):
        model = Biased(handed_on)
        left = select_uniform_repeats(model, RUN, lambda: model(torch.ones(2)))  # noqa: B023  # called at once
        assert left == (replace(RUN[0], kept=kept),)


@pytest.mark.parametrize("order", [slice(8), slice(0, 16, 2), slice(16), slice(15, 7, -1), slice(0)])
def test_blocks_must_be_called_once_each_and_in_order(order: slice) -> None:
    class Rounds(Tower):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in [*self.blocks, *self.blocks][order]:
                x = block(x)
            return x

    model = Rounds()
    alike = select_uniform_repeats(model, RUN, lambda: model(torch.ones(1, 2, 64)))
    assert len(alike) == (1 if order == slice(8) else 0)


def test_blocks_that_make_smaller_what_they_are_handed_are_not_alike() -> None:
    for padding, alike in ((1, 1), (0, 0)):
        blocks = nn.ModuleDict({"blocks": nn.Sequential(*(nn.Conv1d(4, 4, 3, padding=padding) for _ in range(8)))})
        run = partial(blocks["blocks"], torch.ones(1, 4, 32))
        assert len(select_uniform_repeats(blocks, RUN, run)) == alike


def test_a_short_run_is_worth_it_only_with_two_blocks() -> None:
    for given, left in ((lambda i, one, other: (one,), 1), (lambda i, one, other: (other if i == 0 else one,), 0)):
        model = Masked(given, 3)
        run = (Repeat("blocks", 0, 3),)
        assert len(select_uniform_repeats(model, run, lambda: model(torch.ones(2)))) == left  # noqa: B023  # called at once


def test_where_the_model_cannot_run_the_judge_decides() -> None:
    model = Tower()
    assert select_uniform_repeats(model, RUN, lambda: model(torch.ones(2, 3))) == RUN
