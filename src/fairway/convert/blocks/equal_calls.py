"""Checks that equal blocks are called alike. If every eighth gets another mask, for example, the run stays complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from fairway.convert.blocks.repeats import DEFAULT_KEPT_BLOCKS, MIN_KEPT_BLOCKS, Repeat
from fairway.torch_internals import patch_attribute, tree_leaves, tree_map_only

_PLAIN = (bool, int, float, str, type(None))
"""Types whose values are compared with `==`; others are compared by identity."""


def select_uniform_repeats(
    model: torch.nn.Module, repeats: Sequence[Repeat], run: Callable[[], object]
) -> tuple[Repeat, ...]:
    """Return the runs in which no block gets an argument that only some of the other blocks share.

    The model is run once, and the first block of each run replaces the others: their outputs do not matter here. If
    that fails, every run is returned; the judge finds any error.
    """
    with ExitStack() as patches:
        recorded = [_replace_forwards(model, repeat, patches) for repeat in repeats]
        try:
            run()
            pairs = zip(repeats, recorded, strict=True)
            uniform = [
                replace(repeat, kept=_count_needed_blocks(calls))
                for repeat, calls in pairs
                if _is_uniform(repeat, calls)
            ]
        except Exception:
            uniform = [*repeats]
    return tuple(repeat for repeat in uniform if repeat.kept < repeat.count)


@dataclass
class BlockCalls:
    """The calls of the blocks of a run, in order."""

    order: list[int] = field(default_factory=list)
    arguments: list[list[object]] = field(default_factory=list)
    """Kept alive like the copies, so that no two of them can have the same id."""
    outputs: dict[int, torch.Tensor] = field(default_factory=dict)
    """The first block's outputs, by the id of each copy of them."""
    copies: list[torch.Tensor] = field(default_factory=list)


def _replace_forwards(model: torch.nn.Module, repeat: Repeat, patches: ExitStack) -> BlockCalls:
    """Let every block of the run return copies of the first block's outputs, and record the calls.

    Since each block returns its own copies, the id of a value tells which block made it.
    """
    blocks = [model.get_submodule(repeat.block(number)) for number in range(repeat.count)]
    calls = BlockCalls()
    outputs: list[object] = []
    first = blocks[0].forward

    def copy_output(output: torch.Tensor) -> torch.Tensor:
        copy = output.detach()
        calls.copies.append(copy)
        calls.outputs[id(copy)] = output
        return copy

    def forward(number: int, *args: object, **kwargs: object) -> object:
        calls.order.append(number)
        calls.arguments.append(tree_leaves((args, kwargs)))
        if not outputs:
            outputs.append(first(*args, **kwargs))
        return tree_map_only(torch.Tensor, copy_output, outputs[0])

    for number, block in enumerate(blocks):
        patches.enter_context(patch_attribute(block, "forward", partial(forward, number)))
    return calls


def _is_uniform(repeat: Repeat, calls: BlockCalls) -> bool:
    """Return whether each block is called once, in order, and whether the later blocks share an argument or none does.

    That must hold for the values themselves, and for the outputs that they are copies of. A block's output must be as
    large as its input: otherwise later blocks would get other sizes when some are removed.
    """
    if calls.order != [*range(repeat.count)]:
        return False
    first, *later = calls.arguments
    if len({len(call) for call in later}) > 1:
        return False
    for original, passed in zip(first, later[0], strict=False):
        output = calls.outputs.get(id(passed))
        if output is not None and isinstance(original, torch.Tensor) and original.shape != output.shape:
            return False
    for places in zip(*later, strict=True):
        for items in (places, [calls.outputs.get(id(item), item) for item in places]):
            shared = _count_values(items)
            if len(shared) > 1 and max(shared.values()) > 1:
                return False
        if len({isinstance(item, torch.Tensor) for item in places}) > 1:
            return False
    return True


def _count_needed_blocks(calls: BlockCalls) -> int:
    """Return the number of blocks to capture. Two are enough if they share exactly the inputs that later ones share."""
    first, *later = calls.arguments
    if len(first) != len(later[0]):
        return DEFAULT_KEPT_BLOCKS
    for argument, places in zip(first, zip(*later, strict=True), strict=True):
        if (len(_count_values(places)) == 1) != (len(_count_values((argument, places[0]))) == 1):
            return DEFAULT_KEPT_BLOCKS
    return MIN_KEPT_BLOCKS


def _count_values(items: Sequence[object]) -> Counter[object]:
    """Count how often each value occurs."""
    return Counter(item if isinstance(item, _PLAIN) else id(item) for item in items)
