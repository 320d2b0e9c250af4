"""The judge: compares a file with PyTorch sample by sample, by the yardstick."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.answers import RecordedAnswers
from fairway.judge.cells import Array
from fairway.judge.compare import Difference, compare_structure, find_worst, is_lost, measure_errors
from fairway.judge.counts import DecisionCounts, count_differences
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.runtimes.liberties import PlainArithmetic, StableOrder
from fairway.judge.runtimes.ort import OrtSession
from fairway.judge.runtimes.truth import run_truth
from fairway.judge.sample_result import SUMS_EXCUSE, TIES_EXCUSE, SampleResult
from fairway.judge.second_look import (
    MOVED_RUNS,
    ComparedOutput,
    MovedAnswers,
    is_hopeless,
    is_right_when_pooled,
    run_moved,
    settle_outputs,
)
from fairway.judge.yardstick import ERROR_FACTOR, Yardstick
from fairway.model.sample import Sample, apply_touch
from fairway.model.subject import Subject

ENOUGH_FAILURES = 3
"""No further samples are run after this many failures: locating the error is a better use of time."""

HOPELESS_RATIO = 1e4
"""A difference with a larger ratio cannot come from rounding."""

Runner = Callable[[Sequence[str], Sequence[torch.Tensor]], list[Array]]


class Judge:
    """Runs samples in PyTorch, in PyTorch with float64 and in the file, and learns the yardstick from them."""

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
        """True if the yardsticks have stopped learning."""
        self.spent = {"PyTorch": 0.0, "float64": 0.0, "runtime": 0.0}
        """Seconds by engine."""

    def freeze(self) -> None:
        """Stop learning: a later sample is judged only by the errors learned so far and by its own run in float64.

        Its ratio then does not depend on other new samples, and is the same each time.
        """
        self.frozen = True

    def make_inputs(self, sample: Sample) -> list[torch.Tensor]:
        return make_sample_inputs(self.subject, sample, self._data)

    def take(self, sample: Sample) -> SampleResult:
        """Run one sample and keep the result."""
        trial = self.measure(sample)
        self.trials.append(trial)
        return trial

    def measure(self, sample: Sample, is_fresh: bool = False) -> SampleResult:
        """Run one sample. `is_fresh` runs PyTorch even if its answer was recorded."""
        trial = SampleResult(sample, is_learned=not self.frozen)
        tensors = self.make_inputs(sample)
        recorded = None if self.answers is None or is_fresh else self.answers.find(sample)
        with self._add_seconds("PyTorch"):
            ours = self._run_eager(trial, tensors) if recorded is None else recorded[0]
        if trial.illegal is not None:
            return trial
        try:
            with self._add_seconds("runtime"):
                theirs = self._run(self.subject.input_names, tensors)
        except Exception as error:
            trial.difference = Difference(Code.RUNTIME_FAILS, tidy_runtime_message(str(error)))
            return trial
        if len(theirs) != len(ours):
            trial.difference = Difference(
                Code.OUTPUTS_DIFFER, f"PyTorch gives {len(ours)} outputs, the file {len(theirs)}"
            )
            return trial
        with self._add_seconds("float64"):
            truths = self._run_truth(tensors, ours) if recorded is None else recorded[1]
        trial.has_truth = truths is not None
        for name, own, their, truth in zip(self.output_names, ours, theirs, truths or ours, strict=True):
            self._compare(trial, name, own, their, truth)
        return trial

    @contextmanager
    def _add_seconds(self, part: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.spent[part] += time.monotonic() - started

    @contextmanager
    def _pause_learning(self) -> Iterator[None]:
        """Teach the yardsticks nothing while inside."""
        before, self.frozen = self.frozen, True
        try:
            yield
        finally:
            self.frozen = before

    def _run_eager(self, trial: SampleResult, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        try:
            return run_eager(self.subject, tensors)
        except UserError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            drawn_by_us = trial.sample.flavor != "normal" or trial.sample.touch is not None
            undeclared = any(not legal.is_declared for legal in self.subject.ranges)
            if trial.sample.data is None and (not self.subject.domain.is_declared or (drawn_by_us and undeclared)):
                trial.illegal = what
                return []
            raise complain(Code.FORWARD_FAILS, f"{what}, at {trial.sample}") from error

    def _run_truth(self, tensors: list[torch.Tensor], ours: list[torch.Tensor]) -> list[torch.Tensor] | None:
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
        difference = compare_structure(name, ours, their)
        if difference is None and not own.dtype.is_floating_point and not own.dtype.is_complex:
            counted = count_differences(name, ours, their, [true] if trial.has_truth else [])
            trial.undecided += counted.theirs if counted.ratio <= 1 else 0
            difference = None if counted.ratio <= 1 else Difference(Code.NUMBERS_DIFFER, counted.text)
        elif difference is None:
            difference = self._measure_numbers(trial, name, str(own.dtype).removeprefix("torch."), ours, their, true)
        trial.difference = trial.difference or difference

    def _measure_numbers(
        self, trial: SampleResult, name: str, dtype: str, ours: Array, their: Array, truth: Array
    ) -> Difference | None:
        yardstick = self.yardsticks.setdefault((name, trial.kind), Yardstick(dtype, self.no_truth is None))
        measurement = measure_errors(name, truth, ours, their, by_row=not yardstick.truthful, dtype=dtype)
        if isinstance(measurement, Difference):
            return measurement
        trial.measured[name] = measurement
        if _is_teaching(trial, name) and (trial.has_truth or not yardstick.truthful):
            yardstick.learn(measurement.cells, measurement.largest)
        if self.compute_output_ratio(trial, name) > 1:
            place = find_worst(truth, their, self._choose_yardstick(trial, name))
            values = float(truth[place]), float(ours[place]), float(their[place])
            trial.measured[name] = replace(measurement, worst=place, values=values)
        return None

    def _choose_yardstick(self, trial: SampleResult, name: str) -> Yardstick:
        """Return everything learned from the trial's kind of values, or from ordinary values if there is nothing."""
        yardstick = self.yardsticks[name, trial.kind]
        if not yardstick.cells.index.size:
            yardstick = self.yardsticks.get((name, "normal"), yardstick)
        if name in trial.measured and trial.has_truth and not _is_teaching(trial, name):
            yardstick = yardstick.copy()
            yardstick.learn(trial.measured[name].cells, trial.measured[name].largest)
        return yardstick

    def compute_ratio(self, trial: SampleResult) -> float:
        """Return the candidate's worst error in units of the allowed one. It is wrong if that is above 1."""
        if trial.difference is not None:
            return float("inf")
        return max((self.compute_output_ratio(trial, name) for name in trial.measured), default=0.0)

    def compute_output_ratio(self, trial: SampleResult, name: str) -> float:
        measurement = trial.measured[name]
        allowed = self._choose_yardstick(trial, name).allow(measurement.cells.index)
        ratio = float((measurement.theirs / allowed).max(initial=0.0))
        return min(ratio, trial.settled[name].ratio) if name in trial.settled else ratio

    def is_wrong_at(self, sample: Sample) -> bool:
        """Return whether the file is wrong at a sample outside the lattice. Illegal points are not wrong."""
        trial = self.measure(sample)
        return trial.illegal is None and self.compute_ratio(trial) > 1 and not self.excuse(trial)

    def excuse(self, trial: SampleResult) -> bool:
        """Return whether a trial that seems wrong is right.

        It is `settled` if PyTorch's answer moves as far when its roundings are moved. It is `excused` if PyTorch gives
        the file's answer when it takes equal elements or sums in another order.
        """
        if trial.excused or (trial.difference is not None and trial.difference.code != Code.NUMBERS_DIFFER):
            return bool(trial.excused)
        tensors = self.make_inputs(trial.sample)
        answers = self._collect_answers(trial, tensors)
        moved = MovedAnswers()
        if self._try_to_settle(trial, tensors, answers, moved):
            return True
        if self._is_right_in_stable_order(trial, tensors):
            trial.excused = TIES_EXCUSE
            return True
        with PlainArithmetic() as plain:
            moved.near.append([to_array(item) for item in run_eager(self.subject, tensors)])
        counts = settle_outputs(answers, moved)
        if plain.used and all(count.ratio <= 1 for count in counts.values()):
            trial.excused = SUMS_EXCUSE
        return bool(trial.excused)

    def _try_to_settle(
        self, trial: SampleResult, tensors: list[torch.Tensor], answers: list[ComparedOutput], moved: MovedAnswers
    ) -> bool:
        """Run PyTorch with moved roundings until the file is right, or no further run can make it right."""
        counts: dict[str, DecisionCounts] = {}
        for number in range(2 * MOVED_RUNS):
            far = number >= MOVED_RUNS
            run = run_moved(self.subject, tensors, number, ERROR_FACTOR if far else 1.0)
            (moved.far if far else moved.near).extend(run)
            counts = settle_outputs(answers, moved)
            if all(count.ratio <= 1 for count in counts.values()):
                self._accept(trial, counts)
                return True
            if not run or is_hopeless(counts.values()):
                return False
        trial.settled = counts
        return False

    def _accept(self, trial: SampleResult, counts: dict[str, DecisionCounts]) -> None:
        trial.settled = counts
        trial.difference = None
        trial.undecided = sum(count.theirs for name, count in counts.items() if name not in trial.measured)

    def _is_right_in_stable_order(self, trial: SampleResult, tensors: list[torch.Tensor]) -> bool:
        """Return whether the file agrees with PyTorch if equal elements keep their order in a sort."""
        with StableOrder() as order, self._pause_learning():
            run_eager(self.subject, tensors)
            if not order.used:
                return False
            again = self.measure(trial.sample, is_fresh=True)
        return again.illegal is None and self.compute_ratio(again) <= 1

    def _collect_answers(self, trial: SampleResult, tensors: list[torch.Tensor]) -> list[ComparedOutput]:
        """Return PyTorch's, the file's and the true answer for each output."""
        ours = run_eager(self.subject, tensors)
        theirs = self._run(self.subject.input_names, tensors)
        truths = self._run_truth(tensors, ours)
        return [
            ComparedOutput(
                name,
                to_array(own),
                their,
                None if truths is None else to_array(truths[i]),
                self._choose_yardstick(trial, name) if name in trial.measured else None,
            )
            for i, (name, own, their) in enumerate(zip(self.output_names, ours, theirs, strict=True))
        ]

    def find_failures(self) -> list[SampleResult]:
        """Return the trials that are wrong, judged by everything learned so far.

        After enough failures without an excuse no further excuse is looked for, because each takes several runs.
        """
        failures: list[SampleResult] = []
        for trial in self.trials:
            suspect = trial.illegal is None and self.compute_ratio(trial) > 1
            if suspect and (len(failures) >= ENOUGH_FAILURES or not self.excuse(trial)):
                failures.append(trial)
        if failures and self._is_right_together(failures):
            for trial in failures:
                self._accept(trial, trial.settled)
            return []
        return failures

    def _is_right_together(self, failures: Sequence[SampleResult]) -> bool:
        """Return whether decisions at a few elements are right when they are counted over all samples."""
        right = [t for t in self.trials if t.settled and all(count.ratio <= 1 for count in t.settled.values())]
        for name in self.output_names:
            wrong = [t.settled.get(name) for t in failures]
            if any(count is None for count in wrong):
                return False
            suspects = [count for count in wrong if count is not None and count.ratio > 1]
            if suspects and not is_right_when_pooled(
                suspects, [t.settled[name] for t in right if t.settled[name].theirs]
            ):
                return False
        return True


def _is_teaching(trial: SampleResult, name: str) -> bool:
    """Return whether other samples can be judged by a trial's errors. They cannot if PyTorch's numbers are lost."""
    return trial.is_learned and not is_lost(trial.measured[name], trial.kind)


def make_sample_inputs(subject: Subject, sample: Sample, data: Sequence[list[torch.Tensor]]) -> list[torch.Tensor]:
    """Return the tensors of a sample."""
    if sample.data is not None:
        return data[sample.data]
    tensors = subject.make(sample.sizes, sample.seed, sample.flavor)
    if sample.touch is None or not subject.ranges:
        return tensors
    return apply_touch(subject.spec, subject.ranges, tensors, sample.touch, sample.seed)


def open_runtime(path: str, lean: bool = False, threads: int | None = None) -> Runner:
    """Open the file in ONNX Runtime. A refusal is a finding. 0 threads means one for each core."""
    try:
        return OrtSession(path, lean, threads).run
    except Exception as error:
        raise complain(Code.RUNTIME_REFUSES, tidy_runtime_message(str(error))) from error


def tidy_runtime_message(text: str) -> str:
    """Return the runtime's message in one line, without the paths of its source files."""
    text = re.sub(r"\S*/onnxruntime/\S+:\d+\s+\S*\s*", "", text)
    text = re.sub(r"Load model from \S+ failed:\s*", "", text)
    return re.sub(r"\s+", " ", text).strip()[:600]
