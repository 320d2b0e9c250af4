"""Compare two answers for the same rows, and decide if rounding explains the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fairway.judge.compare import Measurement, find_worst, measure_errors
from fairway.judge.runtimes.eager import find_roundoff, nudge_inputs, nudge_weights, run_eager
from fairway.judge.yardstick import Array, Yardstick
from fairway.model.subject import Subject

MAX_EXCUSED_RATIO = 1e4
"""A difference this many times what is allowed is never explained by rounding."""
NUDGED_RUNS = 8
"""Each run decides a tie between two scores one way or the other. A tie that all decide alike is missed."""


@dataclass(frozen=True)
class RowDifference:
    """The first place at which two answers differ, and the numbers there."""

    place: str
    first: str
    second: str
    ratio: float = 1.0
    """The difference in units of the allowed one, or 1 for whole numbers."""


def find_difference(name: str, first: Array, second: Array, yardstick: Yardstick | None) -> RowDifference | None:
    """Compare two answers by a yardstick that has learned, or by the stated tolerances if there is none."""
    if first.shape != second.shape or first.dtype != second.dtype:
        first_kind, second_kind = (f"{array.dtype}{list(array.shape)}" for array in (first, second))
        return RowDifference(name, first_kind, second_kind, float("inf"))
    if first.dtype.kind != "f":
        places = np.argwhere(first != second)
        return _describe_place(name, places[0], first, second, 1.0) if len(places) else None
    measurement = measure_errors(name, first, first, second)
    if not isinstance(measurement, Measurement):
        places = np.argwhere(~((first == second) | (np.isfinite(first) & np.isfinite(second))))
        return _describe_place(name, places[0], first, second, float("inf"))
    yardstick = yardstick or Yardstick(first.dtype.name, False)
    ratio = float((measurement.theirs / yardstick.allow(measurement.cells.index)).max(initial=0.0))
    return None if ratio <= 1 else _describe_place(name, find_worst(first, second, yardstick), first, second, ratio)


def _describe_place(name: str, place: Sequence[int], first: Array, second: Array, ratio: float) -> RowDifference:
    index = tuple(int(i) for i in place)
    return RowDifference(f"{name}{list(index)}", _show_number(first[index]), _show_number(second[index]), ratio)


def _show_number(value: object) -> str:
    return f"{value:.7g}" if isinstance(value, np.floating) else str(value)


def is_explained_by_rounding(difference: RowDifference, first: Array, second: Array, answers: Sequence[Array]) -> bool:
    """Return whether PyTorch's own answer moves as far. `answers` are PyTorch's: unchanged, then moved by rounding.

    The last digit, which depends on the batch size, decides a tie between two scores or a sum that cancels.
    """
    if difference.ratio > MAX_EXCUSED_RATIO:
        return False
    base, *moved = answers
    if first.dtype.kind != "f":
        undecided = np.any([answer != base for answer in moved], axis=0)
        return not ((first != second) & ~undecided).any()
    wide = Yardstick(first.dtype.name, True)
    for answer in moved:
        measurement = measure_errors("", base, answer, answer)
        if not isinstance(measurement, Measurement):
            return False
        wide.learn(measurement.cells, measurement.largest)
    distance = measure_errors("", first, first, second)
    return isinstance(distance, Measurement) and not (distance.theirs > wide.allow(distance.cells.index)).any()


def run_nudged(subject: Subject, tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Return PyTorch's answers: unchanged, then with weights and inputs moved by a rounding error."""
    roundoff = find_roundoff(subject, tensors)
    answers = [run_eager(subject, tensors)]
    for seed in range(NUDGED_RUNS):
        with nudge_weights(subject.model, seed, roundoff):
            answers.append(run_eager(subject, nudge_inputs(tensors, seed, roundoff)))
    return answers
