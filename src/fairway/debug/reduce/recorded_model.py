"""A model written down at its example and at other inputs, and whether that is the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from fairway.debug.reduce.call_recorder import record
from fairway.debug.reduce.program import Program, Ref
from fairway.debug.reduce.program_replay import replay
from fairway.diagnostics.errors import complain
from fairway.judge.judge import sample_inputs
from fairway.judge.runtimes.eager import run_eager
from fairway.judge.samples import subject_lattice
from fairway.model.example import choose_example
from fairway.model.subject import Subject

OTHERS = 16
"""Other inputs at which a file is run: sizes from the bounds inwards, and values at the edges of what is legal."""

LOOKED = 32
"""Inputs that are looked at for that; of a model that goes another way at each of them no more would help."""

APART = 4
"""Inputs at which the model goes another way that are tried after those."""


@dataclass(frozen=True)
class Recording:
    """The model at its example, and how its variables are at other sizes and with other values."""

    program: Program
    samples: list[list[torch.Tensor]]
    """The inputs: the example's, and those of `program.others`."""
    apart: list[list[torch.Tensor]]
    """Inputs at which the model makes other calls."""
    reads: bool
    """Whether it could be shown numbers that were read from tensors as an exporter shows them."""


def recorded(subject: Subject) -> Recording:
    tensors = subject.make(subject.example, 1, "normal")
    program, reads = _faithful(subject, tensors)
    others: list[Mapping[Ref, Any]] = []
    samples, apart = [tensors], []
    for sample in subject_lattice(subject, "standard")[1:LOOKED]:
        with suppress(Exception):  # a point that PyTorch refuses shows nothing of the exporter
            given = sample_inputs(subject, sample, [])
            other = record(subject, given, reads)
            if program.same_calls(other):
                others.append(other.seen)
                samples.append(given)
            else:
                apart.append(given)
        if len(others) == OTHERS:
            break
    return Recording(program.compared(others), samples, sorted(apart, key=_likely(tensors))[:APART], reads)


def _likely(tensors: list[torch.Tensor]) -> Callable[[list[torch.Tensor]], Any]:
    """Other values at the same sizes come first, then the largest: with fewer steps than it was unrolled to, a loop's
    file does not run, which says less than a wrong answer."""
    shapes = [tensor.shape for tensor in tensors]
    return lambda given: ([t.shape for t in given] != shapes, -sum(t.numel() for t in given))


def _faithful(subject: Subject, tensors: list[torch.Tensor]) -> tuple[Program, bool]:
    """The calls, with what Python decided by numbers that it read; less of that where the model insists on an `int`."""
    with suppress(Exception):
        program = record(subject, tensors)
        check_faithful(subject, program, tensors)
        return program, True
    program = record(subject, tensors, reads=False)
    check_faithful(subject, program, tensors)
    return program, False


def telling(subject: Subject) -> Subject:
    """With an example whose sizes are no fixed one's: inside the model a dim is known by its size alone."""
    fixed = {size.fixed for spec in subject.spec for size in spec.shape}
    if fixed.isdisjoint(subject.example.values()):
        return subject
    return replace(subject, example=choose_example(subject.domain, subject.spec, {}))


def check_faithful(subject: Subject, program: Program, tensors: list[torch.Tensor]) -> None:
    """The calls must give what the model gives; else what is cut down is another model."""
    with torch.no_grad():
        got = replay(program)(*(tensor.clone() for tensor in tensors))
    wanted = run_eager(subject, tensors)
    close = (torch.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True) for a, b in zip(wanted, got, strict=False))
    if len(got) > len(wanted) or not all(close):
        raise complain("FW505", f"{len(program.calls)} calls of {subject.name} were written down")
