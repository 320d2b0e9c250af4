"""Find models that behave differently while they are exported. Then the exporter is not at fault."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import torch

from fairway.diagnostics import Code, Finding, Where
from fairway.judge.branch_trace import BranchTrace, trace_branches
from fairway.judge.conditions import find_condition, locate_condition
from fairway.judge.locate.value_recorder import RecordedValue, ValueRecorder, record_values
from fairway.judge.runtimes.eager import run_eager, set_export_flags
from fairway.model.subject import Subject

MIN_DEVIATION = 1e-3
"""Rounding does not explain a larger difference between two answers, relative to the largest value."""


def find_other_way(subject: Subject, tensors: Sequence[torch.Tensor]) -> Finding | None:
    """Return a finding with the first line if PyTorch's own answer is different while the model is exported."""
    plain = run_eager(subject, tensors)
    with set_export_flags():
        exported = run_eager(subject, tensors)
    error = max((_measure_deviation(a, b) for a, b in zip(plain, exported, strict=False)), default=0.0)
    if len(plain) == len(exported) and error <= MIN_DEVIATION:
        return None
    deviation = (
        "another number of outputs" if len(plain) != len(exported) else f"off by {error:.2g} of the largest value"
    )
    return Finding(
        Code.OTHER_WAY_WHEN_EXPORTED,
        f"PyTorch's own answer to the same input is {deviation}",
        where=_find_question(subject, tensors),
    )


def _measure_deviation(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    a, b = a.to(torch.complex128), b.to(torch.complex128)
    finite = a.isfinite() & b.isfinite()
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("inf")
    largest = float(a[finite].abs().max()) if finite.any() else 0.0
    return float((a - b)[finite].abs().max()) / max(largest, 1e-30) if finite.any() else 0.0


def _find_question(subject: Subject, tensors: Sequence[torch.Tensor]) -> Where | None:
    """Return the condition that leads to the first line that only one of the runs reaches, or that line."""
    plain, trace = _trace_run(subject, tensors)
    with set_export_flags():
        exported, others = _trace_run(subject, tensors)
    pairs = zip_longest(_list_lines(plain.values), _list_lines(exported.values))
    value = next(((theirs or ours)[2] for ours, theirs in pairs if _is_different(ours, theirs)), None)
    if value is None or value.where is None:
        return None
    module = f"{value.module or '(the model itself)'} ({value.kind})"
    question = _find_last_question(trace, others, value.number)
    source = linecache.getline(value.where.file or "", value.where.line or 0).strip()
    return replace(question or replace(value.where, source=source or None), module=module)


def _trace_run(subject: Subject, tensors: Sequence[torch.Tensor]) -> tuple[ValueRecorder, BranchTrace]:
    recorder = ValueRecorder(subject.model)
    trace = trace_branches(lambda: record_values(subject, tensors, recorder), lambda: len(recorder.values))
    return recorder, trace


def _find_last_question(plain: BranchTrace, exported: BranchTrace, before: int) -> Where | None:
    """Return the last condition with a different answer before a value, the first of several at that time."""
    questions: list[tuple[int, Where]] = []
    for (site, answer), when in exported.when.items():
        header = find_condition(site)
        if when <= before and header is not None and answer not in plain.taken.get(site, {answer}):
            questions.append((when, locate_condition(site, header)))
    latest = max((when for when, _ in questions), default=0)
    return next((where for when, where in questions if when == latest), None)


def _is_different(ours: _Line | None, theirs: _Line | None) -> bool:
    return ours is None or theirs is None or ours[:2] != theirs[:2]


_Line = tuple[str, object, RecordedValue]


def _list_lines(recorded: Sequence[RecordedValue]) -> list[_Line]:
    return [
        (value.operator, value.where and (value.where.file, value.where.line), value)
        for value in recorded
        if not value.inner
    ]
