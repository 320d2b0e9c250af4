"""Models that go another way while they are exported: then no exporter is at fault."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import torch

from fairway.findings import Finding, Where
from fairway.locate.listen import Made, listen
from fairway.runtimes.eager import as_exported, run_eager
from fairway.subject.subject import Subject

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
    """The first line that runs in one of the two and not in the other."""
    plain = _lines(listen(subject, tensors).heard)
    with as_exported():
        told = _lines(listen(subject, tensors).heard)
    for ours, theirs in zip_longest(plain, told):
        if ours is None or theirs is None or ours[:2] != theirs[:2]:
            made = (theirs or ours)[2]
            if made.where is None:
                return None
            source = linecache.getline(made.where.file or "", made.where.line or 0).strip()
            module = f"{made.module or '(the model itself)'} ({made.kind})"
            return replace(made.where, source=source or None, module=module)
    return None


def _lines(heard: Sequence[Made]) -> list[tuple[str, object, Made]]:
    return [(one.operator, one.where and (one.where.file, one.where.line), one) for one in heard if not one.inner]
