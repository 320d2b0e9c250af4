"""A sample at which the file seems wrong is measured more closely: PyTorch runs again with its roundings moved.

The file is right if PyTorch itself moves as far. Decisions, such as whole numbers, bools and steps, jump when a
rounding moves. There the file may differ at `FACTOR` times as many elements as PyTorch itself does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from fairway.judge.cells import Array, pool
from fairway.judge.compare import Measured, count_beyond, measure
from fairway.judge.counts import DecisionCounts, count_differences
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.runtimes.liberties import CoarseFunctions
from fairway.judge.runtimes.roundings import MovedRoundings
from fairway.judge.yardstick import FACTOR, Yardstick
from fairway.model.subject import Subject

RUNS = 3
"""Runs of PyTorch with its roundings moved."""

FEW_ELEMENTS = 3
"""So few elements of a sample are judged together with those of the other samples."""

HOPELESS_COUNT = 100
"""A file that differs at so many times as many elements as it may is not looked at any closer."""


@dataclass(frozen=True)
class ComparedOutput:
    """One output at one sample: in PyTorch, in the file, and in float64 or None."""

    name: str
    own: Array
    their: Array
    truth: Array | None
    yardstick: Yardstick | None
    """What is allowed so far; None for whole numbers and bools."""


@dataclass
class Moved:
    """PyTorch's answers at one sample with its roundings moved: by one rounding, and by `FACTOR` of them."""

    near: list[list[Array]] = field(default_factory=list)
    far: list[list[Array]] = field(default_factory=list)


def run_moved(subject: Subject, tensors: Sequence[torch.Tensor], seed: int, times: float = 1.0) -> list[list[Array]]:
    """Return PyTorch's answer with every rounding moved and coarse functions; nothing if it cannot be had."""
    try:
        with CoarseFunctions(seed), MovedRoundings(seed, times):
            return [[to_array(item) for item in run_eager(subject, tensors)]]
    except Exception:  # a model that a dispatch mode cannot watch
        return []


def settle(answers: Sequence[ComparedOutput], moved: Moved) -> dict[str, DecisionCounts]:
    """Return for each output how far the file is off, in units of what PyTorch's moved answers allow."""
    found = {}
    for i, answer in enumerate(answers):
        near, far = [run[i] for run in moved.near], [run[i] for run in moved.far]
        if answer.yardstick is None:
            truths = [] if answer.truth is None else [answer.truth]
            found[answer.name] = count_differences(answer.name, answer.own, answer.their, [*truths, *near], far)
        else:
            found[answer.name] = _settle_numbers(answer, answer.yardstick, near, far)
    return found


def _settle_numbers(
    answer: ComparedOutput, base: Yardstick, near: Sequence[Array], far: Sequence[Array]
) -> DecisionCounts:
    truth = answer.own if answer.truth is None else answer.truth
    wide = base.copy() if base.truthful else Yardstick(base.dtype, True)
    pooled = Yardstick(base.dtype, True)
    got = None
    for other in (answer.own, *near):
        now = measure(answer.name, truth, other, answer.their, dtype=base.dtype)
        if not isinstance(now, Measured):
            continue
        got = now
        wide.learn(now.cells, now.largest)
        pooled.learn(now.cells.pooled(), now.largest)
    elements = answer.own.size
    if got is None:
        return DecisionCounts(elements, 1.0, 0.0, 1.0, elements)
    ratio = float((got.theirs / wide.allow(got.cells.index)).max(initial=0.0))
    if ratio <= 1:
        return DecisionCounts(0, ratio, 0.0, 1.0, elements)
    size = float((got.theirs / pooled.allow(pool(got.cells.index))).max(initial=0.0))
    beyond = count_beyond(truth, answer.their, base)
    own = max(count_beyond(truth, other, base) for other in (answer.own, *near))
    allowed = max([FACTOR * own, *(float(count_beyond(truth, other, base)) for other in far)])
    return DecisionCounts(beyond, size, allowed, 1.0, elements)


def is_hopeless(counts: Iterable[DecisionCounts]) -> bool:
    """Whether the file differs at so many more elements than PyTorch that no further run can make it right."""
    return any(one.theirs > HOPELESS_COUNT * max(one.allowed, 1.0) / FACTOR for one in counts)


def pooled_right(wrong: Sequence[DecisionCounts], right: Sequence[DecisionCounts]) -> bool:
    """Whether samples that differ at a few elements are right together with the others of their output.

    The others must be as many: what differs where PyTorch never moves is no matter of luck.
    """
    if not right or len(wrong) > len(right) or any(one.theirs > FEW_ELEMENTS for one in wrong):
        return False
    every = (*wrong, *right)
    largest = max(one.allowed_size for one in right)
    few = sum(one.theirs for one in every) <= sum(one.allowed for one in every)
    return few and all(one.size <= max(one.allowed_size, largest) for one in wrong)
