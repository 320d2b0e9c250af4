"""Finds inputs that have no effect on any output, by running the model with other values of each.

An input may matter only where another input holds a rare number: features of an image are used where a token's id is
that of an image. So an input is replaced next to ordinary values, next to edge values, and next to the numbers with
which the model compares its inputs.
"""

from __future__ import annotations

from collections import Counter

import torch

from fairway.diagnostics import Code, Finding
from fairway.judge.budget import choose_affordable_point
from fairway.judge.runtimes.eager import run_eager
from fairway.judge.samples import choose_other_example
from fairway.model.dims import Point
from fairway.model.sample import Touch, apply_touch
from fairway.model.subject import Subject
from fairway.model.values import Flavor

_OTHER_SEEDS = (4, 5)
"""Seeds of the values that replace those of an input."""
_EDGES: tuple[Flavor, ...] = ("zeros", "most", "log", "mixed")
_TOUCH_SEEDS = (24, 26, 29)
"""Seeds with which a number is put everywhere, and into some elements."""


def find_inputs_without_effect(
    subject: Subject, tensors: list[torch.Tensor], outputs: list[torch.Tensor]
) -> list[Finding]:
    """Return a finding for each input that changed no output in any run. `outputs` are those of `tensors`.

    An input that could not be replaced, because its only legal values are those it has, is not reported. No input is,
    if PyTorch refuses values next to which it might have an effect.
    """
    trials = _EffectTrials(subject)
    point = choose_affordable_point(subject)
    trials.replace_inputs(point, tensors, outputs)
    other = choose_other_example(subject)
    if other != point and trials.names and not trials.try_values(other, subject.make(other, 3, "normal")):
        return []  # the evidence reports that PyTorch refuses the point
    for flavor in _EDGES:
        if trials.names and flavor in subject.flavors:
            trials.try_values(point, subject.make(point, 3, flavor))
    if trials.names and subject.ranges:
        for number in subject.study.literals:
            if not trials.try_number(point, tensors, number):
                return []
    return [
        Finding(Code.INPUT_WITHOUT_EFFECT, f"{name!r}, in {trials.runs[name]} runs", data={"input": name})
        for name in trials.names
        if trials.runs[name]
    ]


class _EffectTrials:
    """Replaces one input at a time, and keeps the names of those that have changed no output so far."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.names = list(subject.input_names)
        self.runs: Counter[str] = Counter()
        """The number of runs in which an input had other values."""

    def try_values(self, point: Point, base: list[torch.Tensor]) -> bool:
        """Replace inputs next to these values. Return False if PyTorch refuses the values."""
        try:
            outputs = run_eager(self._subject, base)
        except Exception:
            return False
        self.replace_inputs(point, base, outputs)
        return True

    def try_number(self, point: Point, tensors: list[torch.Tensor], number: float) -> bool:
        """Replace inputs next to a number in the others. Return False if PyTorch refuses it everywhere."""
        touch, subject = Touch("exact", number), self._subject
        bases = [apply_touch(subject.spec, subject.ranges, tensors, touch, seed) for seed in _TOUCH_SEEDS]
        bases = [base for base in bases if find_difference(base, tensors) is not None]
        accepted = [self.try_values(point, base) for base in bases]
        return not bases or any(accepted)

    def replace_inputs(self, point: Point, base: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        for seed in _OTHER_SEEDS:
            other = self._subject.make(point, seed, "normal")
            self.names = [name for name in self.names if not self._has_effect(name, base, other, outputs)]

    def _has_effect(
        self, name: str, base: list[torch.Tensor], other: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> bool:
        index = self._subject.input_names.index(name)
        if torch.equal(base[index], other[index]):
            return False
        self.runs[name] += 1
        try:
            after = run_eager(self._subject, [*base[:index], other[index], *base[index + 1 :]])
        except Exception:
            return True  # PyTorch refuses the combination, so the input matters
        return find_difference(outputs, after) is not None


def find_difference(outputs: list[torch.Tensor], others: list[torch.Tensor]) -> int | None:
    """Return the index of the first output that differs."""
    for index, (a, b) in enumerate(zip(outputs, others, strict=True)):
        if a.shape != b.shape or not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)):
            return index
    return None
