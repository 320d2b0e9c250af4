"""Two answers for the same rows: whether they differ by more than rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fairway.judge.compare import Measured, find_worst, measure
from fairway.judge.runtimes.eager import nudge, nudged, rounding, run_eager
from fairway.judge.yardstick import Array, Yardstick
from fairway.model.subject import Subject

MOST_EXCUSED_RATIO = 1e4
"""A difference this many times what is allowed is never explained by rounding."""
NUDGED_RUNS = 8
"""Each decides a tie between two scores one way or the other; a tie that all decide alike is missed."""


@dataclass(frozen=True)
class RowDifference:
    """The first place at which two answers differ, and the numbers there."""

    place: str
    first: str
    second: str
    ratio: float = 1.0
    """In units of what is allowed; 1 for whole numbers."""


def find_difference(name: str, first: Array, second: Array, yardstick: Yardstick | None) -> RowDifference | None:
    """Compare two answers. Without a yardstick, which must have been learnt, the stated tolerances apply."""
    if first.shape != second.shape or first.dtype != second.dtype:
        one, other = (f"{array.dtype}{list(array.shape)}" for array in (first, second))
        return RowDifference(name, one, other, float("inf"))
    if first.dtype.kind != "f":
        places = np.argwhere(first != second)
        return _at(name, places[0], first, second, 1.0) if len(places) else None
    got = measure(name, first, first, second)
    if not isinstance(got, Measured):
        places = np.argwhere(~((first == second) | (np.isfinite(first) & np.isfinite(second))))
        return _at(name, places[0], first, second, float("inf"))
    yardstick = yardstick or Yardstick(first.dtype.name, False)
    ratio = float((got.theirs / yardstick.allow(got.cells.index)).max(initial=0.0))
    return None if ratio <= 1 else _at(name, find_worst(first, second, yardstick), first, second, ratio)


def _at(name: str, place: Sequence[int], first: Array, second: Array, ratio: float) -> RowDifference:
    index = tuple(int(i) for i in place)
    return RowDifference(f"{name}{list(index)}", _show(first[index]), _show(second[index]), ratio)


def _show(value: Any) -> str:
    return f"{value:.7g}" if isinstance(value, np.floating) else str(value)


def is_explained_by_rounding(difference: RowDifference, first: Array, second: Array, answers: Sequence[Array]) -> bool:
    """Return whether PyTorch's own answer moves as far. `answers` are PyTorch's: as it is, then moved by rounding.

    A tie between two scores, or a sum that cancels, is decided by the last digit, which another batch size may change.
    """
    if difference.ratio > MOST_EXCUSED_RATIO:
        return False
    base, *moved = answers
    if first.dtype.kind != "f":
        undecided = np.any([one != base for one in moved], axis=0)
        return not ((first != second) & ~undecided).any()
    wide = Yardstick(first.dtype.name, True)
    for one in moved:
        got = measure("", base, one, one)
        if not isinstance(got, Measured):
            return False
        wide.learn(got.cells, got.largest)
    distance = measure("", first, first, second)
    return isinstance(distance, Measured) and not (distance.theirs > wide.allow(distance.cells.index)).any()


def run_nudged(subject: Subject, tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Return PyTorch's answers as it is, then with weights and inputs moved by a rounding error."""
    roundoff = rounding(subject, tensors)
    answers = [run_eager(subject, tensors)]
    for seed in range(NUDGED_RUNS):
        with nudged(subject.model, seed, roundoff):
            answers.append(run_eager(subject, nudge(tensors, seed, roundoff)))
    return answers
