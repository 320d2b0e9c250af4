"""The judge: one file against PyTorch, sample by sample, by the yardstick."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from fairway.diagnostics.errors import UserError, complain
from fairway.judge.answers import RecordedAnswers
from fairway.judge.cells import Array
from fairway.judge.compare import Difference, compare_structure, find_worst, is_lost, measure
from fairway.judge.counts import DecisionCounts, count_differences
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.runtimes.liberties import PlainArithmetic, StableOrder
from fairway.judge.runtimes.ort import OrtSession
from fairway.judge.runtimes.truth import run_truth
from fairway.judge.sample_result import SUMS, TIES, SampleResult
from fairway.judge.second_look import RUNS, ComparedOutput, Moved, is_hopeless, pooled_right, run_moved, settle
from fairway.judge.yardstick import FACTOR, Yardstick
from fairway.model.sample import Sample, apply_touch
from fairway.model.subject import Subject

ENOUGH = 3
"""Failures after which no further samples are taken: the file is wrong, and time is better spent on where."""

HOPELESS = 1e4
"""A ratio beyond which a difference cannot be a matter of rounding."""

Runner = Callable[[Sequence[str], Sequence[torch.Tensor]], list[Array]]


class Judge:
    """Runs samples through PyTorch, its float64 self and the file, and learns the yardstick on the way."""

    def __init__(
        self,
        subject: Subject,
        run: Runner,
        output_names: Sequence[str],
        data: Sequence[list[torch.Tensor]] = (),
        answers: RecordedAnswers | None = None,
    ) -> None:
        self.subject = subject
        self.output_names = tuple(output_names)
        self._run = run
        self._data = data
        self.yardsticks: dict[tuple[str, str], Yardstick] = {}
        self.trials: list[SampleResult] = []
        self.answers = answers
        self.no_truth: str | None = None if answers is None else answers.no_truth
        self.frozen = False
        """Whether the yardsticks have stopped learning."""
        self.spent = {"PyTorch": 0.0, "float64": 0.0, "runtime": 0.0}
        """Seconds by where they went."""

    def freeze(self) -> None:
        """Stop learning: from here on a sample is judged by what was learnt and by its own run in float64 alone.

        Its ratio then depends on no other sample, and is the same each time.
        """
        self.frozen = True

    def inputs(self, sample: Sample) -> list[torch.Tensor]:
        return sample_inputs(self.subject, sample, self._data)

    def take(self, sample: Sample) -> SampleResult:
        """Runs one sample and remembers it."""
        trial = self.measure(sample)
        self.trials.append(trial)
        return trial

    def measure(self, sample: Sample, fresh: bool = False) -> SampleResult:
        """Runs one sample. `fresh` runs PyTorch also if its answer was written down before."""
        trial = SampleResult(sample, learnt=not self.frozen)
        tensors = self.inputs(sample)
        kept = None if self.answers is None or fresh else self.answers.find(sample)
        with self._timed("PyTorch"):
            ours = self._eager(trial, tensors) if kept is None else kept[0]
        if trial.illegal is not None:
            return trial
        try:
            with self._timed("runtime"):
                theirs = self._run(self.subject.input_names, tensors)
        except Exception as error:
            trial.difference = Difference("FW408", tidy(str(error)))
            return trial
        if len(theirs) != len(ours):
            trial.difference = Difference("FW404", f"PyTorch gives {len(ours)} outputs, the file {len(theirs)}")
            return trial
        with self._timed("float64"):
            truths = self._truth(tensors, ours) if kept is None else kept[1]
        trial.truthful = truths is not None
        for name, own, their, truth in zip(self.output_names, ours, theirs, truths or ours, strict=True):
            self._compare(trial, name, own, their, truth)
        return trial

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.spent[what] += time.monotonic() - started

    @contextmanager
    def _unlearning(self) -> Iterator[None]:
        """What is measured inside teaches the yardsticks nothing."""
        before, self.frozen = self.frozen, True
        try:
            yield
        finally:
            self.frozen = before

    def _eager(self, trial: SampleResult, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        try:
            return run_eager(self.subject, tensors)
        except UserError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            drawn_by_us = trial.sample.flavour != "normal" or trial.sample.touch is not None
            undeclared = any(not legal.declared for legal in self.subject.ranges)
            if trial.sample.data is None and (not self.subject.domain.declared or (drawn_by_us and undeclared)):
                trial.illegal = what
                return []
            raise complain("FW201", f"{what}, at {trial.sample}") from error

    def _truth(self, tensors: list[torch.Tensor], ours: list[torch.Tensor]) -> list[torch.Tensor] | None:
        if self.no_truth is None:
            try:
                truths = run_truth(self.subject, tensors, piecewise=self.answers is not None)
                if [t.shape for t in truths] == [o.shape for o in ours]:
                    return truths
                self.no_truth = "in float64 the outputs have other shapes"
            except Exception as error:
                self.no_truth = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return None

    def _compare(self, trial: SampleResult, name: str, own: torch.Tensor, their: Array, truth: torch.Tensor) -> None:
        ours, true = to_array(own), to_array(truth)
        found = compare_structure(name, ours, their)
        if found is None and not own.dtype.is_floating_point and not own.dtype.is_complex:
            counted = count_differences(name, ours, their, [true] if trial.truthful else [])
            trial.undecided += counted.theirs if counted.ratio <= 1 else 0
            found = None if counted.ratio <= 1 else Difference("FW401", counted.text)
        elif found is None:
            found = self._measure_numbers(trial, name, str(own.dtype).removeprefix("torch."), ours, their, true)
        trial.difference = trial.difference or found

    def _measure_numbers(
        self, trial: SampleResult, name: str, dtype: str, ours: Array, their: Array, truth: Array
    ) -> Difference | None:
        yardstick = self.yardsticks.setdefault((name, trial.kind), Yardstick(dtype, self.no_truth is None))
        got = measure(name, truth, ours, their, by_row=not yardstick.truthful, dtype=dtype)
        if isinstance(got, Difference):
            return got
        trial.measured[name] = got
        if _teaches(trial, name) and (trial.truthful or not yardstick.truthful):
            yardstick.learn(got.cells, got.largest)
        if self.ratio_of(trial, name) > 1:
            place = find_worst(truth, their, self._yardstick(trial, name))
            values = float(truth[place]), float(ours[place]), float(their[place])
            trial.measured[name] = replace(got, worst=place, values=values)
        return None

    def _yardstick(self, trial: SampleResult, name: str) -> Yardstick:
        """What a trial is judged by: everything learnt of its kind, or of ordinary values if there is nothing."""
        yardstick = self.yardsticks[name, trial.kind]
        if not yardstick.cells.index.size:
            yardstick = self.yardsticks.get((name, "normal"), yardstick)
        if name in trial.measured and trial.truthful and not _teaches(trial, name):
            yardstick = yardstick.copy()
            yardstick.learn(trial.measured[name].cells, trial.measured[name].largest)
        return yardstick

    def ratio(self, trial: SampleResult) -> float:
        """The candidate's worst error in units of what is allowed; beyond 1 it is wrong."""
        if trial.difference is not None:
            return float("inf")
        return max((self.ratio_of(trial, name) for name in trial.measured), default=0.0)

    def ratio_of(self, trial: SampleResult, name: str) -> float:
        got = trial.measured[name]
        allowed = self._yardstick(trial, name).allow(got.cells.index)
        ratio = float((got.theirs / allowed).max(initial=0.0))
        return min(ratio, trial.settled[name].ratio) if name in trial.settled else ratio

    def bad(self, sample: Sample) -> bool:
        """Whether the file is wrong at a sample outside the lattice. Illegal points are not."""
        trial = self.measure(sample)
        return trial.illegal is None and self.ratio(trial) > 1 and not self.excuse(trial)

    def excuse(self, trial: SampleResult) -> bool:
        """Whether a trial that seems wrong is right after all.

        It is if PyTorch moves as far once its roundings are moved: then it is `settled`. It is `excused` if PyTorch
        gives the file's answer with equal elements or sums taken in another order.
        """
        if trial.excused or (trial.difference is not None and trial.difference.code != "FW401"):
            return bool(trial.excused)
        tensors = self.inputs(trial.sample)
        answers = self._answers(trial, tensors)
        moved = Moved()
        if self._settles(trial, tensors, answers, moved):
            return True
        if self._right_in_stable_order(trial, tensors):
            trial.excused = TIES
            return True
        with PlainArithmetic() as plain:
            moved.near.append([to_array(item) for item in run_eager(self.subject, tensors)])
        counts = settle(answers, moved)
        if plain.used and all(one.ratio <= 1 for one in counts.values()):
            trial.excused = SUMS
        return bool(trial.excused)

    def _settles(
        self, trial: SampleResult, tensors: list[torch.Tensor], answers: list[ComparedOutput], moved: Moved
    ) -> bool:
        """Moves PyTorch's roundings, more and more of them, until the file is right or there is no more hope."""
        counts: dict[str, DecisionCounts] = {}
        for number in range(2 * RUNS):
            far = number >= RUNS
            run = run_moved(self.subject, tensors, number, FACTOR if far else 1.0)
            (moved.far if far else moved.near).extend(run)
            counts = settle(answers, moved)
            if all(one.ratio <= 1 for one in counts.values()):
                self._accept(trial, counts)
                return True
            if not run or is_hopeless(counts.values()):
                return False
        trial.settled = counts
        return False

    def _accept(self, trial: SampleResult, counts: dict[str, DecisionCounts]) -> None:
        trial.settled = counts
        trial.difference = None
        trial.undecided = sum(one.theirs for name, one in counts.items() if name not in trial.measured)

    def _right_in_stable_order(self, trial: SampleResult, tensors: list[torch.Tensor]) -> bool:
        """Whether the file agrees with PyTorch once equal elements are sorted as they are."""
        with StableOrder() as order, self._unlearning():
            run_eager(self.subject, tensors)
            if not order.used:
                return False
            again = self.measure(trial.sample, fresh=True)
        return again.illegal is None and self.ratio(again) <= 1

    def _answers(self, trial: SampleResult, tensors: list[torch.Tensor]) -> list[ComparedOutput]:
        """PyTorch's, the file's and the true answer, output by output."""
        ours = run_eager(self.subject, tensors)
        theirs = self._run(self.subject.input_names, tensors)
        truths = self._truth(tensors, ours)
        return [
            ComparedOutput(
                name,
                to_array(own),
                their,
                None if truths is None else to_array(truths[i]),
                self._yardstick(trial, name) if name in trial.measured else None,
            )
            for i, (name, own, their) in enumerate(zip(self.output_names, ours, theirs, strict=True))
        ]

    def failures(self) -> list[SampleResult]:
        """The trials that are wrong for certain, judged by everything learnt so far.

        Once enough of them have no excuse, the others are not asked for one: it costs several runs of the model each.
        """
        found: list[SampleResult] = []
        for trial in self.trials:
            suspect = trial.illegal is None and self.ratio(trial) > 1
            if suspect and (len(found) >= ENOUGH or not self.excuse(trial)):
                found.append(trial)
        if found and self._right_together(found):
            for trial in found:
                self._accept(trial, trial.settled)
            return []
        return found

    def _right_together(self, found: Sequence[SampleResult]) -> bool:
        """Whether decisions at a few elements are right, counted over all samples."""
        right = [t for t in self.trials if t.settled and all(one.ratio <= 1 for one in t.settled.values())]
        for name in self.output_names:
            wrong = [t.settled.get(name) for t in found]
            if any(one is None for one in wrong):
                return False
            suspects = [one for one in wrong if one is not None and one.ratio > 1]
            if suspects and not pooled_right(suspects, [t.settled[name] for t in right if t.settled[name].theirs]):
                return False
        return True


def _teaches(trial: SampleResult, name: str) -> bool:
    """Whether the errors of a trial say anything about other samples. They do not where PyTorch's numbers are lost."""
    return trial.learnt and not is_lost(trial.measured[name], trial.kind)


def sample_inputs(subject: Subject, sample: Sample, data: Sequence[list[torch.Tensor]]) -> list[torch.Tensor]:
    """The tensors that a sample stands for."""
    if sample.data is not None:
        return data[sample.data]
    tensors = subject.make(sample.sizes, sample.seed, sample.flavour)
    if sample.touch is None or not subject.ranges:
        return tensors
    return apply_touch(subject.spec, subject.ranges, tensors, sample.touch, sample.seed)


def open_runtime(path: str, lean: bool = False, threads: int | None = None) -> Runner:
    """Open the file in ONNX Runtime; its refusal is a finding. 0 threads stands for as many as there are cores."""
    try:
        return OrtSession(path, lean, threads).run
    except Exception as error:
        raise complain("FW407", tidy(str(error))) from error


def tidy(text: str) -> str:
    """The runtime's words without its own source paths, in one line."""
    text = re.sub(r"\S*/onnxruntime/\S+:\d+\s+\S*\s*", "", text)
    text = re.sub(r"Load model from \S+ failed:\s*", "", text)
    return re.sub(r"\s+", " ", text).strip()[:600]
