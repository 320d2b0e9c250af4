"""The judge: one file against PyTorch, sample by sample, by the yardstick."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from fairway.errors import UserError, complain
from fairway.evidence.answers import Answers
from fairway.evidence.compare import Difference, Measured, compare_exact, compare_structure, measure
from fairway.evidence.lattice import Sample
from fairway.evidence.yardstick import Array, Real, Yardstick
from fairway.runtimes.eager import nudge, nudged, rounding, run_eager, run_truth, to_array
from fairway.runtimes.liberties import PlainArithmetic, StableOrder
from fairway.runtimes.ort import OrtSession
from fairway.subject.subject import Subject
from fairway.subject.values import bring_near

ENOUGH = 3
"""Failures after which no further samples are taken: the file is wrong, and time is better spent on where."""

TIES = "PyTorch leaves the order of equal elements open"

NUDGES = 3
HOPELESS = 1e4
"""A ratio beyond which a difference cannot be a matter of rounding."""

Runner = Callable[[Sequence[str], Sequence[torch.Tensor]], list[Array]]


@dataclass
class Trial:
    """What happened at one sample."""

    sample: Sample
    difference: Difference | None = None
    measured: dict[str, Measured] = field(default_factory=dict)
    undecided: int = 0
    illegal: str | None = None
    """PyTorch's own refusal, at a point whose bounds nobody declared."""
    excused: str = ""
    """Why a difference is none of the file's doing."""

    @property
    def kind(self) -> str:
        """Errors are pooled apart for ordinary and for edge values, which can be far worse conditioned."""
        return "normal" if self.sample.flavour == "normal" else self.sample.flavour


class Judge:
    """Runs samples through PyTorch, its float64 self and the file, and learns the yardstick on the way."""

    def __init__(
        self, subject: Subject, run: Runner, output_names: Sequence[str], data: Sequence[list[torch.Tensor]] = (),
        answers: Answers | None = None,
    ) -> None:  # fmt: skip
        self.subject = subject
        self.output_names = tuple(output_names)
        self._run = run
        self._data = data
        self.yardsticks: dict[tuple[str, str], Yardstick] = {}
        self.trials: list[Trial] = []
        self.answers = answers
        self.no_truth: str | None = None if answers is None else answers.no_truth
        self.spent = {"PyTorch": 0.0, "float64": 0.0, "runtime": 0.0}
        """Seconds by where they went."""

    def inputs(self, sample: Sample) -> list[torch.Tensor]:
        return sample_inputs(self.subject, sample, self._data)

    def take(self, sample: Sample) -> Trial:
        """Runs one sample and remembers it."""
        trial = self.measure(sample)
        self.trials.append(trial)
        return trial

    def measure(self, sample: Sample) -> Trial:
        trial = Trial(sample)
        tensors = self.inputs(sample)
        kept = None if self.answers is None else self.answers.find(sample)
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
            truths = self._truth(tensors, ours) if kept is None else kept[1] or ours
        for name, own, their, truth in zip(self.output_names, ours, theirs, truths, strict=True):
            self._compare(trial, name, own, their, truth)
        return trial

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.spent[what] += time.monotonic() - started

    def _eager(self, trial: Trial, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        try:
            return run_eager(self.subject, tensors)
        except UserError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if trial.sample.data is None and not self.subject.domain.declared:
                trial.illegal = what
                return []
            raise complain("FW201", f"{what}, at {trial.sample}") from error

    def _truth(self, tensors: list[torch.Tensor], ours: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.no_truth is None:
            try:
                truths = run_truth(self.subject, tensors, piecewise=self.answers is not None)
                if [t.shape for t in truths] == [o.shape for o in ours]:
                    return truths
                self.no_truth = "in float64 the outputs have other shapes"
            except Exception as error:
                self.no_truth = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return ours

    def _compare(self, trial: Trial, name: str, own: torch.Tensor, their: Array, truth: torch.Tensor) -> None:
        ours = to_array(own)
        found = compare_structure(name, ours, their)
        if found is None and not own.dtype.is_floating_point and not own.dtype.is_complex:
            found, undecided = compare_exact(name, ours, their, [to_array(truth)])
            trial.undecided += undecided
        elif found is None:
            yardstick = self.yardsticks.setdefault(
                (name, trial.kind),
                Yardstick(str(own.dtype).removeprefix("torch."), self.no_truth is None),
            )
            got = measure(name, to_array(truth), ours, their)
            if isinstance(got, Measured):
                trial.measured[name] = got
                yardstick.learn(got.own if yardstick.truthful else _magnitudes(ours), got.largest)
            else:
                found = got
        trial.difference = trial.difference or found

    def ratio(self, trial: Trial) -> float:
        """The candidate's worst error in units of what is allowed; beyond 1 it is wrong."""
        if trial.difference is not None:
            return float("inf")
        return max((self.ratio_of(trial, name) for name in trial.measured), default=0.0)

    def ratio_of(self, trial: Trial, name: str) -> float:
        allowed = self.yardsticks[name, trial.kind].tolerance()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(trial.measured[name].theirs / allowed, nan=0.0, posinf=float("inf"))
        return float(ratios.max())

    def bad(self, sample: Sample) -> bool:
        """Whether the file is wrong at a sample that is looked at outside the lattice. Illegal points are not."""
        trial = self.measure(sample)
        return trial.illegal is None and self.ratio(trial) > 1 and not self.excuse(trial)

    def excuse(self, trial: Trial) -> bool:
        """True where PyTorch itself gives the file's answer, or moves as far, for reasons that decide nothing.

        They are the order of equal elements, how sums are taken, and a rounding error in weights and inputs.
        """
        if trial.difference is not None and trial.difference.code != "FW401":
            return False
        tensors = self.inputs(trial.sample)
        if self._right_in_stable_order(trial, tensors):
            trial.excused = TIES
            return True
        answers = self._answers(tensors)
        with PlainArithmetic() as plain:
            moved = [run_eager(self.subject, tensors)]
        if plain.used and self._within(trial, answers, moved):
            trial.excused = "PyTorch itself is as far off with its sums taken in plain order"
            return True
        if trial.difference is None and self.ratio(trial) > HOPELESS:
            return False
        if self._within(trial, answers, self._nudged(tensors)):
            trial.excused = "PyTorch itself moves as far by a rounding error"
        return bool(trial.excused)

    def _right_in_stable_order(self, trial: Trial, tensors: list[torch.Tensor]) -> bool:
        """Whether the file agrees with PyTorch once equal elements are sorted as they stand."""
        with StableOrder() as order:
            run_eager(self.subject, tensors)
            if not order.used:
                return False
            again = self.measure(trial.sample)
        return again.illegal is None and self.ratio(again) <= 1

    def _nudged(self, tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        roundoff = rounding(self.subject, tensors)
        moved = []
        for seed in range(NUDGES):
            with nudged(self.subject.model, seed, roundoff):
                moved.append(run_eager(self.subject, nudge(tensors, seed, roundoff)))
        return moved

    def _answers(self, tensors: list[torch.Tensor]) -> list[tuple[Array, Array, Array]]:
        """PyTorch's, the file's and the true answer, output by output."""
        ours = run_eager(self.subject, tensors)
        theirs = self._run(self.subject.input_names, tensors)
        truths = self._truth(tensors, ours)
        return [(to_array(o), t, to_array(w)) for o, t, w in zip(ours, theirs, truths, strict=True)]

    def _within(
        self, trial: Trial, answers: list[tuple[Array, Array, Array]], moved: list[list[torch.Tensor]]
    ) -> bool:
        """Whether the file is no further off than PyTorch's answers when moved, by the factor."""
        for i, (name, (own, their, truth)) in enumerate(zip(self.output_names, answers, strict=True)):
            others = [to_array(m[i]) for m in moved]
            if name not in trial.measured:
                found, _ = compare_exact(name, own, their, [truth, *others])
                if found is not None:
                    return False
                continue
            wide = Yardstick(self.yardsticks[name, trial.kind].dtype, True)
            for other in (own, *others):
                got = measure(name, truth, other, their)
                if not isinstance(got, Measured):
                    return False
                wide.learn(got.own, got.largest)
            if (trial.measured[name].theirs > wide.tolerance()).any():
                return False
        return True

    def failures(self) -> list[Trial]:
        """The trials that are wrong for certain, judged by everything learnt so far.

        Once enough of them have no excuse, the others are not asked for one: it costs several runs of the model each.
        """
        found: list[Trial] = []
        for trial in self.trials:
            suspect = trial.illegal is None and self.ratio(trial) > 1
            if suspect and (len(found) >= ENOUGH or not self.excuse(trial)):
                found.append(trial)
        return found


def sample_inputs(subject: Subject, sample: Sample, data: Sequence[list[torch.Tensor]]) -> list[torch.Tensor]:
    """The tensors that a sample stands for."""
    if sample.data is not None:
        return data[sample.data]
    tensors = subject.make(sample.sizes, sample.seed, sample.flavour)
    if sample.near is None:
        return tensors
    pairs = zip(subject.spec, tensors, strict=True)
    return [bring_near(spec, tensor, sample.near, sample.seed) for spec, tensor in pairs]


def _magnitudes(values: Array) -> Real:
    """Marks the buckets that hold values at all, for stated tolerances."""
    from fairway.evidence.yardstick import bucket, worst_by_bucket

    wide = values.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    return worst_by_bucket((wide != 0).astype(np.float64), bucket(wide))


def open_runtime(path: str, lean: bool = False) -> Runner:
    """The file in ONNX Runtime, or the error with which it refuses, as a finding."""
    try:
        return OrtSession(path, lean).run
    except Exception as error:
        raise complain("FW407", tidy(str(error))) from error


def tidy(text: str) -> str:
    """The runtime's words without its own source paths, in one line."""
    text = re.sub(r"\S*/onnxruntime/\S+:\d+\s+\S*\s*", "", text)
    text = re.sub(r"Load model from \S+ failed:\s*", "", text)
    return re.sub(r"\s+", " ", text).strip()[:600]
