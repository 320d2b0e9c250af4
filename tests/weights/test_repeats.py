"""Equal blocks in a row are found; what tells blocks apart ends a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.weights.nets import Block, Tower
from torch import nn

from fairway.convert.blocks.repeats import MIN_BLOCKS, Repeat, find_repeats, keep_more_blocks, shorten_model


def runs(*blocks: nn.Module, training: bool = False) -> list[tuple[int, int]]:
    model = nn.ModuleDict({"blocks": nn.ModuleList(blocks)}).train(training)
    return [(r.first, r.count) for r in find_repeats(model)]


def test_a_run_of_equal_blocks_is_found() -> None:
    assert find_repeats(Tower(9)) == (Repeat("blocks", 0, 9),)


def test_a_sequential_counts_as_well() -> None:
    model = nn.Sequential(nn.Linear(3, 64), nn.Sequential(*(Block(i) for i in range(7))))
    assert find_repeats(model) == (Repeat("1", 0, 7),)


def test_a_short_run_is_left_alone() -> None:
    assert find_repeats(Tower(MIN_BLOCKS - 1)) == ()


def test_short_runs_count_beside_a_long_one() -> None:
    stages = [nn.Sequential(*(Block(i, width) for i in range(n))) for n, width in ((3, 8), (2, 16), (9, 32), (3, 64))]
    model = nn.ModuleDict({"stages": nn.ModuleList(stages)})
    assert set(find_repeats(model)) == {Repeat("stages.2", 0, 9), Repeat("stages.0", 0, 3), Repeat("stages.3", 0, 3)}


def test_a_short_run_of_long_runs_is_not_the_one_that_counts() -> None:
    stages = nn.ModuleList(nn.Sequential(*(Block(i) for i in range(7))) for _ in range(4))
    model = nn.ModuleDict({"stages": stages})
    assert find_repeats(model) == tuple(Repeat(f"stages.{i}", 0, 7) for i in range(4))


def test_of_runs_in_a_run_the_outer_one_counts() -> None:
    stages = nn.ModuleList(nn.Sequential(*(Block(i) for i in range(7))) for _ in range(6))
    model = nn.ModuleDict({"stages": stages})
    assert find_repeats(model) == (Repeat("stages", 0, 6),)


def test_where_two_blocks_were_too_few_three_are_kept_and_then_all() -> None:
    short, long = Repeat("a", 0, 3, kept=2), Repeat("b", 0, 9, kept=2)
    assert keep_more_blocks((short, long)) == (Repeat("b", 0, 9, kept=3),)
    assert keep_more_blocks((Repeat("b", 0, 9, kept=3),)) == ()


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


class Placed(nn.Module):
    """Asks each block where it stands, and the container how long it is."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList((*(Block(i) for i in range(8)), nn.Linear(64, 3)))
        self.asked: list[tuple[int, int, object]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, block in enumerate(self.blocks):
            self.asked.append((i, len(self.blocks), isinstance(block, Block) and block.index))
            x = block(x)
        return x


@pytest.mark.parametrize("kept", [2, 3])
def test_the_kept_blocks_of_a_shortened_model_keep_their_places(kept: int) -> None:
    whole, model = Placed(), Placed()
    blocks = [*model.blocks]
    weights = {name for name, _ in model.named_parameters()}
    cut = shorten_model(model, tuple(replace(run, kept=kept) for run in find_repeats(model)))
    assert cut.removed == {f"blocks.{i}": blocks[i] for i in range(kept, 8)}
    stay = tuple(f"blocks.{i}." for i in (*range(kept), 8))
    assert {name for name, _ in model.named_parameters()} == {name for name in weights if name.startswith(stay)}
    x = torch.ones(2, 64)
    expected = blocks[8](nn.Sequential(*blocks[:kept])(x))
    assert torch.equal(model(x), expected)
    assert whole(x).shape == (2, 3)
    assert model.asked == whole.asked


def test_a_gap_is_a_block_that_was_there_for_all_who_ask() -> None:
    model = Tower(8)
    shorten_model(model, find_repeats(model))
    assert {(type(block).__module__, type(block).__qualname__) for block in model.blocks} == {
        (Block.__module__, Block.__qualname__)
    }
    assert all(isinstance(block, Block) for block in model.blocks)


def test_blocks_with_names_of_their_own_are_no_run() -> None:
    named = nn.Sequential()
    for i in range(8):
        named.add_module(f"block{i}", Block(i))
    assert find_repeats(nn.ModuleDict({"net": named})) == ()
