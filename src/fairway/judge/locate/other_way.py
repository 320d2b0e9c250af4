"""Models that go another way while they are exported: then no exporter is at fault."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import torch

from fairway.diagnostics import Finding, Where
from fairway.judge.branch_trace import Ways, ways_of
from fairway.judge.conditions import header_of, place_of
from fairway.judge.locate.value_recorder import Listener, Made, listen
from fairway.judge.runtimes.eager import as_exported, run_eager
from fairway.model.subject import Subject

OFF = 1e-3
"""Of the largest value: so far apart, two answers are not one answer rounded in two ways."""


def other_way(subject: Subject, tensors: Sequence[torch.Tensor]) -> Finding | None:
    """Whether PyTorch itself answers otherwise once the model is told that it is exported, and the first such line."""
    plain = run_eager(subject, tensors)
    with as_exported():
        told = run_eager(subject, tensors)
    off = max((_off(a, b) for a, b in zip(plain, told, strict=False)), default=0.0)
    if len(plain) == len(told) and off <= OFF:
        return None
    said = "another number of outputs" if len(plain) != len(told) else f"off by {off:.2g} of the largest value"
    return Finding("FW216", f"PyTorch's own answer to the same input is {said}", where=_parting(subject, tensors))


def _off(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    a, b = a.to(torch.complex128), b.to(torch.complex128)
    finite = a.isfinite() & b.isfinite()
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("inf")
    largest = float(a[finite].abs().max()) if finite.any() else 0.0
    return float((a - b)[finite].abs().max()) / max(largest, 1e-30) if finite.any() else 0.0


def _parting(subject: Subject, tensors: Sequence[torch.Tensor]) -> Where | None:
    """The question that leads to the first line that runs in one of the two alone; that line, where none is found."""
    plain, ways = _followed(subject, tensors)
    with as_exported():
        told, others = _followed(subject, tensors)
    pairs = zip_longest(_lines(plain.heard), _lines(told.heard))
    made = next(((theirs or ours)[2] for ours, theirs in pairs if _differ(ours, theirs)), None)
    if made is None or made.where is None:
        return None
    module = f"{made.module or '(the model itself)'} ({made.kind})"
    asked = _asked(ways, others, made.number)
    source = linecache.getline(made.where.file or "", made.where.line or 0).strip()
    return replace(asked or replace(made.where, source=source or None), module=module)


def _followed(subject: Subject, tensors: Sequence[torch.Tensor]) -> tuple[Listener, Ways]:
    listener = Listener(subject.model)
    ways = ways_of(lambda: listen(subject, tensors, listener), lambda: len(listener.heard))
    return listener, ways


def _asked(plain: Ways, told: Ways, before: int) -> Where | None:
    """The question answered otherwise last before that value was made; of several at once the first, which decides."""
    found: list[tuple[int, Where]] = []
    for (site, answer), when in told.when.items():
        header = header_of(site)
        if when <= before and header is not None and answer not in plain.taken.get(site, {answer}):
            found.append((when, place_of(site, header)))
    latest = max((when for when, _ in found), default=0)
    return next((where for when, where in found if when == latest), None)


def _differ(ours: _Line | None, theirs: _Line | None) -> bool:
    return ours is None or theirs is None or ours[:2] != theirs[:2]


_Line = tuple[str, object, Made]


def _lines(heard: Sequence[Made]) -> list[_Line]:
    return [(one.operator, one.where and (one.where.file, one.where.line), one) for one in heard if not one.inner]
