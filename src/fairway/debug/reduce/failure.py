"""How a model fails, and the calls of it that fail in the same way: where cutting starts."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairway.convert.rewrite.find import suspects
from fairway.debug.reduce.best_so_far import resume
from fairway.debug.reduce.call_recorder import record
from fairway.debug.reduce.first_cut import aim
from fairway.debug.reduce.last_checks import Clock, checks
from fairway.debug.reduce.other_branch import parted
from fairway.debug.reduce.program import ASKED, TAKEN, Program
from fairway.debug.reduce.recorded_model import Recording, recorded, telling
from fairway.debug.reduce.suspect_calls import places
from fairway.debug.reduce.trial_export import FailureSignature, Seen, TrialCase, TrialRunner, dynamic
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.runtimes.eager import as_exported
from fairway.model.outputs import output_leaves
from fairway.model.subject import Subject

Progress = Callable[[Any], None]

SHARE = 0.5
"""Of the time left, for the lines that a failure names, before all calls are tried."""

POINTED = 200
"""Calls: up to here a part is tried before all of them are, which may take a minute."""


@dataclass(frozen=True)
class Start:
    """A failure, and what it is cut down from."""

    bench: TrialRunner
    seen: Seen
    whole: Program
    program: Program
    """The calls that fail in the same way: all of them, or a part that was found at once."""
    cut: bool
    """Whether it is such a part."""


class Plain(torch.nn.Module):
    """The model itself, with plain tensors in and out."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model = subject.model
        self._call = subject.call

    def forward(self, *tensors: torch.Tensor) -> Any:
        args, kwargs = self._call(tensors)
        return tuple(leaf.value for leaf in output_leaves(self.model(*args, **kwargs)))


def failing(
    subject: Subject, folder: Path, exporters: Sequence[str], check: str | None, clock: Clock, progress: Progress
) -> Start | None:
    """The first exporter that fails on the model, and where to start. None where none does anything wrong."""
    subject = telling(subject)
    subject.model.eval()
    progress(("stage", "writing down the model's calls"))
    recording = recorded(subject)
    whole, samples = recording.program, recording.samples
    tick = partial(progress, ("tick",))
    for exporter in exporters:
        progress(("stage", f"all {len(whole.calls)} calls by {exporter}"))
        bench = TrialRunner(exporter, clock.limit, tick)
        case = TrialCase(Plain(subject).eval(), (*samples, *recording.apart), dynamic(whole, samples[0]))
        seen = TrialRunner(exporter, clock.generous, tick).judge(case)
        if check is not None:
            if checks(whole, exporter, check):
                seen = Seen(FailureSignature("check", "kept by", check), seen.said)
                plain = _at(whole, seen)
                kept = resume(folder, plain, exporter, FailureSignature("check", "kept by", check))
                return Start(bench, seen, plain, kept or plain, kept is not None)
        elif seen.signature is not None:
            if seen.other is not None and seen.other >= len(whole.others):
                return _apart(subject, folder, bench, seen, recording)
            return _start(subject, folder, bench, seen, whole, clock, progress)
    return None


def _apart(subject: Subject, folder: Path, bench: TrialRunner, seen: Seen, recording: Recording) -> Start:
    """The question that the model answered otherwise where the file is wrong."""
    assert seen.signature is not None
    assert seen.other is not None
    whole = recording.program
    given = recording.apart[seen.other - len(whole.others)]
    program = parted(whole, record(subject, given, recording.reads), seen.signature)
    if program is None or bench(program).signature != seen.signature:
        said = f"by {bench.exporter} the file is wrong where the model goes another way: {seen.signature}"
        raise not_by_calls(subject, said)
    kept = resume(folder, program, bench.exporter, seen.signature)
    return Start(bench, replace(seen, other=0), program, kept or program, cut=kept is not None)


def _start(
    subject: Subject, folder: Path, bench: TrialRunner, seen: Seen, whole: Program, clock: Clock, progress: Progress
) -> Start:
    """What an earlier run left, the place that the failure names, or all calls: the first that fails in this way."""
    assert seen.signature is not None
    plain = _at(whole, seen)
    narrowed = replace(seen, other=0 if plain.others else None)
    recordings = [plain, plain.pressed()] if seen.signature.code == "FW303" else [plain]
    for recording in recordings:
        kept = resume(folder, recording, bench.exporter, seen.signature)
        if kept is not None and bench(kept).signature == seen.signature:
            progress(("stage", f"goes on with the {len(kept.calls)} calls that an earlier run left"))
            return Start(bench, narrowed, recording, kept, cut=True)
    progress(("stage", f"{seen.signature.code}: the lines that it names"))
    for recording in (*recordings, *_told(subject, whole, seen)):
        part = _pointed(recording, seen, bench, clock)
        if part is not None:
            return Start(bench, narrowed, recording, part, cut=True)
    ends: dict[str, None] = {}
    progress(("stage", f"{seen.signature.code}: the calls without the model"))
    for program in _ways(subject, whole, seen.signature):
        began = time.monotonic()
        kept = resume(folder, _at(program, seen), bench.exporter, seen.signature)
        if kept is not None and bench(kept).signature == seen.signature:
            return Start(bench, narrowed, _at(program, seen), kept, cut=True)
        again = TrialRunner(bench.exporter, clock.generous)(program)
        if again.signature == seen.signature:
            clock.last = time.monotonic() - began  # if nothing smaller fails, what is to come takes as long
            program = _at(program, again)
            return Start(bench, replace(again, other=0 if program.others else None), program, program, cut=False)
        ends[str(again.signature or again.said)] = None
    said = f"by {bench.exporter} the model fails: {seen.signature}; its calls: {', '.join(ends)}"
    raise not_by_calls(subject, said)


def _at(program: Program, seen: Seen) -> Program:
    """Tried, besides the example, at that other input alone at which the failure was seen."""
    others = () if seen.other is None else program.others[seen.other : seen.other + 1]
    return replace(program, others=others)


def _told(subject: Subject, whole: Program, seen: Seen) -> list[Program]:
    """The calls that the model makes when told that it is exported, where no line that is named made any other."""
    if seen.lines and not places(seen.lines, whole):
        with suppress(Exception), as_exported():
            return [_at(recorded(subject).program, seen)]
    return []


def _pointed(start: Program, seen: Seen, bench: TrialRunner, clock: Clock) -> Program | None:
    """The part around a line of the model's own that the failure names, if that fails in the same way."""
    assert seen.signature is not None
    if seen.signature.stage == "compare":
        return None  # that something is wrong shows at the end, not where it went wrong
    until = clock.left * (1 - SHARE)

    def enough() -> bool:
        return clock.left < until or clock.enough()

    part = aim(start, seen, bench, lambda p: bench(p).signature == seen.signature, enough, POINTED)
    return None if part is start else part


def not_by_calls(subject: Subject, seen: str) -> UserError:
    """Where a line of the model decides how many calls there are, that line is the cause, and it is named."""
    args, kwargs = subject.call(subject.make(subject.example, 1, "normal"))
    given = inspect.signature(subject.model.forward).bind(*args, **kwargs).arguments
    lines = [] if isinstance(subject.model, torch.jit.ScriptModule) else suspects(subject.model, given)
    if not lines:
        return complain("FW505", seen)
    return complain(
        "FW505",
        f"{seen}; in the model's own code {lines[0].detail}",
        where=lines[0].where,
        todo=(
            "Look at the line named first: it is in the model, not in the exporter.",
            "fairway export RECIPE tries to repair it.",
        ),
    )


def _ways(subject: Subject, whole: Program, failure: FailureSignature) -> Iterator[Program]:
    """The model's calls, as they may look to an exporter, the likeliest first; each costs as much as the model."""
    asks = any(call.name in (*ASKED, *TAKEN) for call in whole.calls)
    if asks and failure.code != "FW303":
        yield whole.undecided()  # the exporter got past those questions, as models ask some only in eager mode
    yield whole
    if failure.code == "FW303":
        yield whole.pressed()
    if any(tensor.requires_grad for tensor in whole.weights.values()):
        yield whole.untrained()
    if not asks or failure.code == "FW303":
        yield whole.undecided()
    told = whole
    with suppress(Exception), as_exported():
        told = recorded(subject).program
    if not whole.same_calls(told):
        yield told
        yield told.undecided()
