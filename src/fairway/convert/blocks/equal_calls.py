"""Equal blocks may still be called with other things, every eighth with another mask, say: such runs are left whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves, tree_map_only  # seen to work in torch 2.9–2.13; no public counterpart

from fairway.convert.blocks.repeats import FEWEST, KEPT, Repeat

_PLAIN = (bool, int, float, str, type(None))
"""Of these one is as good as another that is equal."""


def called_alike(model: torch.nn.Module, repeats: Sequence[Repeat], run: Callable[[], object]) -> tuple[Repeat, ...]:
    """The runs of which no block is handed something that some of the others share and the rest do not.

    The model is run once, with the first block of each run standing in for the others: what they would have answered
    does not matter here. Where that fails nothing is left out; the judge has the last word.
    """
    with ExitStack() as stood_in:
        heard = [_stand_in(model, repeat, stood_in) for repeat in repeats]
        try:
            run()
            pairs = zip(repeats, heard, strict=True)
            told = [replace(repeat, kept=_enough(calls)) for repeat, calls in pairs if _alike(repeat, calls)]
        except Exception:
            told = [*repeats]
    return tuple(repeat for repeat in told if repeat.kept < repeat.count)


@dataclass
class BlockCalls:
    """What the blocks of a run were handed, one after another."""

    order: list[int] = field(default_factory=list)
    given: list[list[Any]] = field(default_factory=list)
    """Held like the copies, so that no two of them can have the same id."""
    answers: dict[int, Any] = field(default_factory=dict)
    """What the first block said, by the id of each copy of it that was handed out."""
    copies: list[torch.Tensor] = field(default_factory=list)


def _stand_in(model: torch.nn.Module, repeat: Repeat, meanwhile: ExitStack) -> BlockCalls:
    """Lets the run's first block answer for all meanwhile, each time with a copy: who made a value can be told then."""
    blocks = [model.get_submodule(repeat.block(number)) for number in range(repeat.count)]
    calls = BlockCalls()
    answers: list[Any] = []
    first = blocks[0].forward

    def copied(answer: torch.Tensor) -> torch.Tensor:
        copy = answer.detach()
        calls.copies.append(copy)
        calls.answers[id(copy)] = answer
        return copy

    def forward(number: int, *args: Any, **kwargs: Any) -> Any:
        calls.order.append(number)
        calls.given.append(tree_leaves((args, kwargs)))
        if not answers:
            answers.append(first(*args, **kwargs))
        return tree_map_only(torch.Tensor, copied, answers[0])

    for number, block in enumerate(blocks):
        meanwhile.enter_context(patch.object(block, "forward", partial(forward, number)))
    return calls


def _alike(repeat: Repeat, calls: BlockCalls) -> bool:
    """Each block is called once, in order; of each argument all but the first share one thing, or no two of them do.

    That holds for what they are handed, and for what that is, whichever block made it. What a block hands on is as
    large as what it is handed: others would see other sizes behind fewer blocks.
    """
    if calls.order != [*range(repeat.count)]:
        return False
    first, *later = calls.given
    if len({len(call) for call in later}) > 1:
        return False
    for given, handed in zip(first, later[0], strict=False):
        if id(handed) in calls.answers and isinstance(given, torch.Tensor) and given.shape != handed.shape:
            return False
    for places in zip(*later, strict=True):
        for items in (places, [calls.answers.get(id(item), item) for item in places]):
            shared = _shared(items)
            if len(shared) > 1 and max(shared.values()) > 1:
                return False
        if len({isinstance(item, torch.Tensor) for item in places}) > 1:
            return False
    return True


def _enough(calls: BlockCalls) -> int:
    """Two blocks tell all there is to know where they share with each other just what the later ones share."""
    first, *later = calls.given
    if len(first) != len(later[0]):
        return KEPT
    for given, places in zip(first, zip(*later, strict=True), strict=True):
        if (len(_shared(places)) == 1) != (len(_shared((given, places[0]))) == 1):
            return KEPT
    return FEWEST


def _shared(items: Sequence[Any]) -> Counter[Any]:
    """How often each thing is there."""
    return Counter(item if isinstance(item, _PLAIN) else id(item) for item in items)
