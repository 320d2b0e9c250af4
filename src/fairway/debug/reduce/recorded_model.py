"""A model recorded at its example and at other inputs, checked to compute the same as the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.program import Program, Ref, Value
from fairway.debug.reduce.program_replay import replay
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.judge.judge import make_sample_inputs
from fairway.judge.runtimes.eager import run_eager
from fairway.judge.samples import list_lattice_samples
from fairway.model.example import choose_example
from fairway.model.subject import Subject

MAX_OTHER_INPUTS = 16
"""Other inputs at which a file is run: sizes from the bounds inwards, and extreme legal values."""

MAX_RECORDED_INPUTS = 32
"""Inputs that are recorded to find them. If the model takes another branch at all of these, more would not help."""

MAX_OTHER_BRANCH_INPUTS = 4
"""Inputs with another branch that are tried after those."""


@dataclass(frozen=True)
class Recording:
    """The model at its example, and its variables at other sizes and values."""

    program: Program
    samples: list[list[torch.Tensor]]
    """The inputs: the example's, and those of `program.others`."""
    other_branch_samples: list[list[torch.Tensor]]
    """Inputs at which the model makes other calls."""
    tracks_reads: bool
    """Tells whether numbers read from tensors were tracked as an exporter does."""


def record_model(subject: Subject) -> Recording:
    tensors = subject.make(subject.example, 1, "normal")
    program, tracks_reads = _record_faithfully(subject, tensors)
    others: list[Mapping[Ref, Value]] = []
    samples, other_branch_samples = [tensors], []
    for sample in list_lattice_samples(subject, "standard")[1:MAX_RECORDED_INPUTS]:
        with suppress(Exception):  # a point that PyTorch refuses tells nothing about the exporter
            inputs = make_sample_inputs(subject, sample, [])
            other = record_calls(subject, inputs, tracks_reads)
            if program.has_same_calls(other):
                others.append(other.seen)
                samples.append(inputs)
            else:
                other_branch_samples.append(inputs)
        if len(others) == MAX_OTHER_INPUTS:
            break
    return Recording(
        program.with_other_inputs(others),
        samples,
        sorted(other_branch_samples, key=_make_sort_key(tensors))[:MAX_OTHER_BRANCH_INPUTS],
        tracks_reads,
    )


def _make_sort_key(tensors: list[torch.Tensor]) -> Callable[[list[torch.Tensor]], Value]:
    """Sort other values at the same sizes first, then larger inputs.

    With fewer steps than it was unrolled to, a loop's file does not run, which shows less than a wrong output.
    """
    shapes = [tensor.shape for tensor in tensors]
    return lambda given: ([t.shape for t in given] != shapes, -sum(t.numel() for t in given))


def _record_faithfully(subject: Subject, tensors: list[torch.Tensor]) -> tuple[Program, bool]:
    """Record the calls and the decisions by numbers that were read; without those if the model needs a real `int`."""
    with suppress(Exception):
        program = record_calls(subject, tensors)
        check_faithful(subject, program, tensors)
        return program, True
    program = record_calls(subject, tensors, reads=False)
    check_faithful(subject, program, tensors)
    return program, False


def choose_distinct_sizes(subject: Subject) -> Subject:
    """Return the subject with dim sizes at the example that differ from fixed sizes: a size identifies its dim."""
    fixed = {size.constant_value for spec in subject.spec for size in spec.shape}
    if fixed.isdisjoint(subject.example.values()):
        return subject
    return replace(subject, example=choose_example(subject.domain, subject.spec, {}))


def check_faithful(subject: Subject, program: Program, tensors: list[torch.Tensor]) -> None:
    """Fail if the calls do not compute what the model does; a different model would be cut down."""
    with torch.no_grad():
        outputs = replay(program)(*(tensor.clone() for tensor in tensors))
    expected = run_eager(subject, tensors)
    close = (
        torch.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True) for a, b in zip(expected, outputs, strict=False)
    )
    if len(outputs) > len(expected) or not all(close):
        seen = f"the {len(program.calls)} recorded calls of {subject.name} give other outputs than the model"
        raise complain(Code.CALLS_NOT_SEEN, seen)
