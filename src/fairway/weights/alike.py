"""Equal blocks may still be called with other things, every eighth with another mask, say: such runs are left whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves  # seen to work in torch 2.9–2.13; no public counterpart

from fairway.weights.repeats import Repeat

_PLAIN = (bool, int, float, str, type(None))
"""Of these one is as good as another that is equal."""


def called_alike(model: torch.nn.Module, repeats: Sequence[Repeat], run: Callable[[], object]) -> tuple[Repeat, ...]:
    """The runs of which no block is handed something that some of the others share and the rest do not.

    The model is run once, with the first block of each run standing in for the others: what they would have answered
    does not matter here. Where that fails nothing is left out; the judge has the last word. For a process of its own.
    """
    heard = [_stand_in(model, repeat) for repeat in repeats]
    try:
        run()
    except Exception:
        return tuple(repeats)
    return tuple(repeat for repeat, calls in zip(repeats, heard, strict=True) if _alike(calls))


def _stand_in(model: torch.nn.Module, repeat: Repeat) -> list[list[Any]]:
    """Lets the run's first block answer for all, from now on; the list fills with what they are handed."""
    blocks = [model.get_submodule(repeat.block(number)) for number in range(repeat.count)]
    calls: list[list[Any]] = []
    answers: list[Any] = []
    first = blocks[0].forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        calls.append(tree_leaves((args, kwargs)))  # held, so that no two of them can have the same id
        if not answers:
            answers.append(first(*args, **kwargs))
        return answers[0]

    for block in blocks:
        block.forward = forward
    return calls


def _alike(calls: Sequence[Sequence[Any]]) -> bool:
    """The second block and those after it: by each argument, all of them share one thing, or no two of them do."""
    later = calls[1:]
    if len({len(call) for call in later}) > 1:
        return False
    for places in zip(*later, strict=True):
        shared = Counter(item if isinstance(item, _PLAIN) else id(item) for item in places)
        if len(shared) > 1 and max(shared.values()) > 1:
            return False
        if len({isinstance(item, torch.Tensor) for item in places}) > 1:
            return False
    return True
