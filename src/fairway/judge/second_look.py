"""Measure a sample at which the file seems wrong more closely: run PyTorch again with its roundings moved.

The file is right if PyTorch itself moves as far. Decisions, such as whole numbers, bools and steps, jump when a
rounding moves. There the file may differ at `ERROR_FACTOR` times as many elements as PyTorch itself does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from fairway.judge.cells import Array, pool_positions
from fairway.judge.compare import Measurement, count_beyond, measure_errors
from fairway.judge.counts import DecisionCounts, count_differences
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.runtimes.liberties import CoarseFunctions
from fairway.judge.runtimes.roundings import MovedRoundings
from fairway.judge.yardstick import ERROR_FACTOR, Yardstick
from fairway.model.subject import Subject

MOVED_RUNS = 3
"""Runs of PyTorch with its roundings moved."""

MAX_POOLED_ELEMENTS = 3
"""If a sample differs at no more elements than this, they are judged together with those of other samples."""

HOPELESS_COUNT_RATIO = 100
"""A file that differs at this many times as many elements as allowed is not measured further."""


@dataclass(frozen=True)
class ComparedOutput:
    """One output at one sample: in PyTorch, in the file, and in float64 or None."""

    name: str
    own: Array
    their: Array
    truth: Array | None
    yardstick: Yardstick | None
    """The yardstick as learned so far, or None for whole numbers and bools."""


@dataclass
class MovedAnswers:
    """PyTorch's answers at one sample with its roundings moved, by one rounding error and by `ERROR_FACTOR` of them."""

    near: list[list[Array]] = field(default_factory=list)
    far: list[list[Array]] = field(default_factory=list)


def run_moved(subject: Subject, tensors: Sequence[torch.Tensor], seed: int, times: float = 1.0) -> list[list[Array]]:
    """Return PyTorch's answer with every rounding moved and coarse functions, or nothing if it cannot be computed."""
    try:
        with CoarseFunctions(seed), MovedRoundings(seed, times):
            return [[to_array(item) for item in run_eager(subject, tensors)]]
    except Exception:  # a model that a dispatch mode cannot watch
        return []


def settle_outputs(answers: Sequence[ComparedOutput], moved: MovedAnswers) -> dict[str, DecisionCounts]:
    """Compare each output with PyTorch's moved answers too, and return the counts of its differences."""
    counts = {}
    for i, answer in enumerate(answers):
        near, far = [run[i] for run in moved.near], [run[i] for run in moved.far]
        if answer.yardstick is None:
            truths = [] if answer.truth is None else [answer.truth]
            counts[answer.name] = count_differences(answer.name, answer.own, answer.their, [*truths, *near], far)
        else:
            counts[answer.name] = _settle_numbers(answer, answer.yardstick, near, far)
    return counts


def _settle_numbers(
    answer: ComparedOutput, base: Yardstick, near: Sequence[Array], far: Sequence[Array]
) -> DecisionCounts:
    truth = answer.own if answer.truth is None else answer.truth
    wide = base.copy() if base.truthful else Yardstick(base.dtype, True)
    pooled = Yardstick(base.dtype, True)
    measurement = None
    for other in (answer.own, *near):
        now = measure_errors(answer.name, truth, other, answer.their, dtype=base.dtype)
        if not isinstance(now, Measurement):
            continue
        measurement = now
        wide.learn(now.cells, now.largest)
        pooled.learn(now.cells.merge_positions(), now.largest)
    elements = answer.own.size
    if measurement is None:
        return DecisionCounts(elements, 1.0, 0.0, 1.0, elements)
    ratio = float((measurement.theirs / wide.allow(measurement.cells.index)).max(initial=0.0))
    if ratio <= 1:
        return DecisionCounts(0, ratio, 0.0, 1.0, elements)
    size = float((measurement.theirs / pooled.allow(pool_positions(measurement.cells.index))).max(initial=0.0))
    beyond = count_beyond(truth, answer.their, base)
    own = max(count_beyond(truth, other, base) for other in (answer.own, *near))
    allowed = max([ERROR_FACTOR * own, *(float(count_beyond(truth, other, base)) for other in far)])
    return DecisionCounts(beyond, size, allowed, 1.0, elements)


def is_hopeless(counts: Iterable[DecisionCounts]) -> bool:
    """Return whether the file differs at so many more elements than PyTorch that no further run can make it right."""
    return any(count.theirs > HOPELESS_COUNT_RATIO * max(count.allowed, 1.0) / ERROR_FACTOR for count in counts)


def is_right_when_pooled(wrong: Sequence[DecisionCounts], right: Sequence[DecisionCounts]) -> bool:
    """Return whether samples that differ at a few elements are right when counted with the other samples.

    There must be at least as many other samples: a difference where PyTorch never moves is not a coincidence.
    """
    if not right or len(wrong) > len(right) or any(count.theirs > MAX_POOLED_ELEMENTS for count in wrong):
        return False
    every = (*wrong, *right)
    largest = max(count.allowed_size for count in right)
    is_few = sum(count.theirs for count in every) <= sum(count.allowed for count in every)
    return is_few and all(count.size <= max(count.allowed_size, largest) for count in wrong)
