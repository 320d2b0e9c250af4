"""Caches that grow with the longest input seen, such as a positional table that `forward` extends.

What such a model computes, and what a capture of it records, depends on what was run before. It is settled by a run at
the highest corner of the domain: afterwards nothing is left to grow. That run is made once in each process that
captures or judges, so that all see the same model. Whether it settles anything is found out first, each way in a
process that starts from the model as it was given.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from fairway.convert.ladder.state import ModelState
from fairway.diagnostics import Finding
from fairway.judge.budget import volume
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.model.dims import Point, show
from fairway.model.study import WarmUp
from fairway.model.subject import Subject
from fairway.model.values import Flavour
from fairway.workers.attempt import Limits, Workers

CORNER_FLOPS = 3e10
"""Operations that the run at the highest corner may take."""
END_FLOPS = 1e11
"""Operations that a run with one dim at its end and the others at their lowest may take, if the corner is dearer."""
SECONDS = 60.0

_warm: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
"""Models that were warmed up in this process."""


def warm_up(subject: Subject) -> None:
    """Make the runs after which the model's answers no longer depend on what was run before."""
    found = subject.study.warm_up
    if found is None or subject.model in _warm:
        return
    _warm.add(subject.model)
    _run_at(subject, [dict(point) for point in found.points])


@dataclass(frozen=True)
class _Seen:
    """What one order of runs showed: the state they changed, and the answers before and after them."""

    changed: frozenset[str]
    flags: frozenset[str]
    """Attributes that hold a plain number, word or nothing."""
    first: str
    last: str


def find_warm_up(workers: Workers, subject: Subject, remedies: bool) -> Subject:
    """Return the subject with the runs that settle its state; as it is if it has none, or if they do not settle it."""
    low, high = lowest(subject), _highest(subject)
    if not high:
        return subject

    def look(points: Sequence[Point]) -> _Seen | None:
        def work(tell: object) -> _Seen:
            if remedies:
                subject.model.eval()
            return _look(subject, points, [low, *high])

        limits = Limits(min(workers.limits.seconds, SECONDS), workers.limits.bytes)
        outcome = workers.run(work, limits=limits)
        return outcome.value if outcome.status == "done" else None

    fresh = look([])
    if fresh is not None and not fresh.changed:
        return subject
    for points in (high, [low]):
        seen = look(points)
        if seen is None or seen.first != seen.last:
            continue
        if fresh is not None and fresh.first != seen.first:
            continue  # the model as it is given answers differently: its answers depend on what was run before (FW219)
        settled = sorted(fresh.changed - seen.changed) if fresh is not None else ["the state"]
        if settled:
            runs = tuple(tuple(point.items()) for point in points)
            warm_up = WarmUp(runs, tuple(settled), fresh is None, not seen.flags.issuperset(settled))
            return replace(subject, study=replace(subject.study, warm_up=warm_up))
    return subject


def lowest(subject: Subject) -> Point:
    return {dim.name: dim.sizes[0] for dim in subject.domain.dims}


def _highest(subject: Subject) -> list[Point]:
    """Return the highest corner, or the end of each dim by itself if the corner is dear; none of what is dearer."""
    low, per_volume = lowest(subject), subject.study.flops_per_volume
    corner = {dim.name: dim.sizes[-1] for dim in subject.domain.dims}
    if corner == low:
        return []
    if per_volume * volume(corner) <= CORNER_FLOPS:
        return [corner]
    ends = [{**low, dim.name: dim.sizes[-1]} for dim in subject.domain.dims]
    return [end for end in ends if end != low and per_volume * volume(end) <= END_FLOPS]


def _look(subject: Subject, points: Sequence[Point], others: Sequence[Point]) -> _Seen:
    """Warm up at `points`, then run at the example and at `others` twice, with large numbers in between."""
    _run_at(subject, points)
    state = ModelState(subject.model)
    first = _answers(subject, others)
    with suppress(Exception):  # large numbers may not be legal; they show what follows values rather than sizes
        _run_at(subject, [lowest(subject), subject.example], "large")
    changed = frozenset(state.find_changes(containers=True))
    flags = frozenset(
        f"{path}.{name}" if path else name
        for path, module in subject.model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str | None)
    )
    return _Seen(changed, flags, first, _answers(subject, others) if changed else first)


def _answers(subject: Subject, points: Sequence[Point]) -> str:
    """Return a digest of the answers at the example and at the points, in this order."""
    digest = hashlib.sha256()
    for seed, point in enumerate((subject.example, *points)):
        torch.manual_seed(11)
        for tensor in run_eager(subject, subject.make(point, 1 + seed, "normal")):
            digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(to_array(tensor).tobytes())
    return digest.hexdigest()


def _run_at(subject: Subject, points: Sequence[Point], flavour: Flavour = "normal") -> None:
    """Run the model in eval mode, as a file is judged; every module has its own mode again afterwards."""
    modes = [(module, module.training) for module in subject.model.modules()]
    subject.model.eval()
    try:
        for number, point in enumerate(points):
            run_eager(subject, subject.make(point, 31 + number, flavour))
    finally:
        for module, mode in modes:
            module.training = mode


def settled_finding(subject: Subject) -> tuple[Finding, ...]:
    """Say at which sizes the model was run first, and whether that changed its answers."""
    found = subject.study.warm_up
    if found is None or not (found.fails_fresh or found.holds_tensors):
        return ()  # a flag or a counter of first calls
    points = "; then at ".join(show(dict(point)) for point in found.points)
    names = ", ".join(found.settled[:3]) + (f" and {len(found.settled) - 3} more" if len(found.settled) > 3 else "")
    seen = f"{names} no longer changes after a run at {points}"
    if found.fails_fresh:
        return (Finding("FW229", f"{seen}; before it, the model fails at some sizes", grade="warning"),)
    return (Finding("FW229", seen),)
