"""Caches that grow with the longest input seen, such as a positional table that `forward` extends.

Such a model's outputs, and a capture of it, depend on what was run before. A run at the highest corner of the domain
settles it: afterwards nothing is left to grow. Each process that captures or judges makes that run once, so that all of
them see the same model. Trials find out first which runs settle the model. Each trial is made in a process that starts
from the model as it was given.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from fairway.convert.ladder.model_mode import keep_mode, set_eval_mode
from fairway.convert.ladder.model_state import ModelState
from fairway.diagnostics import Code, Finding
from fairway.judge.budget import compute_volume
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.model.dims import Point, describe_point
from fairway.model.study import WarmUp
from fairway.model.subject import Subject
from fairway.model.values import Flavor
from fairway.workers.attempt import Limits, Workers

CORNER_FLOPS = 3e10
"""Operations that the run at the highest corner may take."""
END_FLOPS = 1e11
"""Operations that a run with one dim at its end and the others at their lowest may take, if the corner costs more."""
TRIAL_SECONDS = 60.0

_warm: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
"""Models that were warmed up in this process."""


def warm_up(subject: Subject) -> None:
    """Make the runs after which the model's outputs no longer depend on what was run before."""
    needed = subject.study.warm_up
    if needed is None or subject.model in _warm:
        return
    _warm.add(subject.model)
    _run_at(subject, [dict(point) for point in needed.points])


@dataclass(frozen=True)
class _Trial:
    """The result of one order of runs: the state that they changed, and digests of the outputs before and after."""

    changed: frozenset[str]
    flags: frozenset[str]
    """Attributes that hold a number, a string or None."""
    first: str
    last: str


def find_warm_up(workers: Workers, subject: Subject, remedies: bool) -> Subject:
    """Return the subject with the runs that settle its state, or unchanged if it has no state or no runs settle it."""
    low, high = find_lowest_point(subject), _list_highest_points(subject)
    if not high:
        return subject

    def try_runs(points: Sequence[Point]) -> _Trial | None:
        def work(on_event: object) -> _Trial:
            if remedies:
                set_eval_mode(subject.model)
            return _try_warm_up(subject, points, [low, *high])

        limits = Limits(min(workers.limits.seconds, TRIAL_SECONDS), workers.limits.bytes)
        outcome = workers.run(work, limits=limits)
        return outcome.value if outcome.status == "done" else None

    fresh = try_runs([])
    if fresh is not None and not fresh.changed:
        return subject
    for points in (high, [low]):
        trial = try_runs(points)
        if trial is None or trial.first != trial.last:
            continue
        if fresh is not None and fresh.first != trial.first:
            continue  # the model as it is given has other outputs: they depend on what was run before (FW219)
        settled = sorted(fresh.changed - trial.changed) if fresh is not None else ["the state"]
        if settled:
            runs = tuple(tuple(point.items()) for point in points)
            warm_up = WarmUp(runs, tuple(settled), fresh is None, not trial.flags.issuperset(settled))
            return replace(subject, study=replace(subject.study, warm_up=warm_up))
    return subject


def find_lowest_point(subject: Subject) -> Point:
    return {dim.name: dim.sizes[0] for dim in subject.domain.dims}


def _list_highest_points(subject: Subject) -> list[Point]:
    """Return the highest corner, or if it costs too much, the end of each dim alone as far as that is affordable."""
    low, per_volume = find_lowest_point(subject), subject.study.flops_per_volume
    corner = {dim.name: dim.sizes[-1] for dim in subject.domain.dims}
    if corner == low:
        return []
    if per_volume * compute_volume(corner) <= CORNER_FLOPS:
        return [corner]
    ends = [{**low, dim.name: dim.sizes[-1]} for dim in subject.domain.dims]
    return [end for end in ends if end != low and per_volume * compute_volume(end) <= END_FLOPS]


def _try_warm_up(subject: Subject, points: Sequence[Point], others: Sequence[Point]) -> _Trial:
    """Warm up at `points`, then run at the example and at `others` twice, with large numbers in between."""
    _run_at(subject, points)
    state = ModelState(subject.model)
    first = _hash_outputs(subject, others)
    with suppress(
        Exception
    ):  # large numbers may not be legal; they show the state that follows values rather than sizes
        _run_at(subject, [find_lowest_point(subject), subject.example], "large")
    changed = frozenset(state.find_changes(containers=True))
    flags = frozenset(
        f"{path}.{name}" if path else name
        for path, module in subject.model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str | None)
    )
    return _Trial(changed, flags, first, _hash_outputs(subject, others) if changed else first)


def _hash_outputs(subject: Subject, points: Sequence[Point]) -> str:
    """Return a digest of the outputs at the example and at the points, in this order."""
    digest = hashlib.sha256()
    for seed, point in enumerate((subject.example, *points)):
        torch.manual_seed(11)
        for tensor in run_eager(subject, subject.make(point, 1 + seed, "normal")):
            digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(to_array(tensor).tobytes())
    return digest.hexdigest()


def _run_at(subject: Subject, points: Sequence[Point], flavor: Flavor = "normal") -> None:
    """Run the model in eval mode, as a file is judged. Afterwards every module has its own mode again."""
    with keep_mode(subject.model):
        set_eval_mode(subject.model)
        for number, point in enumerate(points):
            run_eager(subject, subject.make(point, 31 + number, flavor))


def report_warm_up(subject: Subject) -> tuple[Finding, ...]:
    """Report the sizes at which the model was run first, and whether that changed its outputs."""
    warmed = subject.study.warm_up
    if warmed is None or not (warmed.fails_fresh or warmed.holds_tensors):
        return ()  # a flag or a counter of first calls
    points = "; then at ".join(describe_point(dict(point)) for point in warmed.points)
    names = ", ".join(warmed.settled[:3]) + (f" and {len(warmed.settled) - 3} more" if len(warmed.settled) > 3 else "")
    seen = f"{names} no longer changes after a run at {points}"
    if warmed.fails_fresh:
        return (Finding(Code.STATE_SETTLED, f"{seen}; before it, the model fails at some sizes", grade="warning"),)
    return (Finding(Code.STATE_SETTLED, seen),)
