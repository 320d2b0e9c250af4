"""Equal blocks in a row are found; what tells blocks apart ends a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.weights.nets import Block, Tower
from torch import nn

from fairway.weights.repeats import KEPT, LEAST, Repeat, find_repeats, shorten


def runs(*blocks: nn.Module, training: bool = False) -> list[tuple[int, int]]:
    model = nn.ModuleDict({"blocks": nn.ModuleList(blocks)}).train(training)
    return [(r.first, r.count) for r in find_repeats(model)]


def test_a_run_of_equal_blocks_is_found() -> None:
    assert find_repeats(Tower(9)) == (Repeat("blocks", 0, 9),)


def test_a_sequential_counts_as_well() -> None:
    model = nn.Sequential(nn.Linear(3, 64), nn.Sequential(*(Block(i) for i in range(7))))
    assert find_repeats(model) == (Repeat("1", 0, 7),)


def test_a_short_run_is_left_alone() -> None:
    assert find_repeats(Tower(LEAST - 1)) == ()


def test_one_block_of_another_size_ends_the_run() -> None:
    blocks = [Block(i, 32 if i == 2 else 64) for i in range(10)]
    assert runs(*blocks) == [(3, 7)]


@pytest.mark.parametrize(
    "change",
    [
        lambda block: setattr(block, "scale", 2.0),
        lambda block: setattr(block.norm, "eps", 1e-3),
        lambda block: setattr(block, "index", 40),
        lambda block: setattr(block, "fc", nn.Linear(64, 64, bias=False)),
        lambda block: setattr(block, "activation", torch.relu),
        lambda block: block.half(),
    ],
    ids=["attribute", "eps", "index", "bias", "function", "dtype"],
)
def test_whatever_tells_a_block_apart_ends_the_run(change: Callable[[nn.Module], object]) -> None:
    blocks = [Block(i) for i in range(10)]
    change(blocks[1])
    assert runs(*blocks) == [(2, 8)]


def test_dropout_that_grows_with_depth_matters_in_training_alone() -> None:
    blocks = [nn.Sequential(Block(i), nn.Dropout(0.01 * i)) for i in range(8)]
    assert runs(*blocks) == [(0, 8)]
    assert runs(*blocks, training=True) == []


def test_one_block_that_stands_there_many_times_is_no_run() -> None:
    assert runs(*[Block(0)] * 8) == []


def test_the_shortened_model_has_three_blocks_and_what_comes_after() -> None:
    model = nn.Sequential(*(Block(i) for i in range(8)), nn.Linear(64, 3))
    root = nn.ModuleDict({"net": model})
    blocks = [*model.children()]
    cut = shorten(root, find_repeats(root))
    assert [*model.children()] == [*blocks[:KEPT], blocks[8]]
    assert cut.removed == {f"net.{i}": blocks[i] for i in range(KEPT, 8)}
    assert cut.renumbered == {"net.3": "net.8"}
    assert model(torch.zeros(2, 64)).shape == (2, 3)
