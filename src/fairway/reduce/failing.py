"""How a model fails, and the calls of it that fail in the same way: where cutting starts."""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fairway.errors import UserError, complain
from fairway.evidence.gather import subject_lattice
from fairway.evidence.judge import sample_inputs
from fairway.reduce.aim import aim
from fairway.reduce.closing import Clock, checks
from fairway.reduce.keep import resume
from fairway.reduce.point import places
from fairway.reduce.program import Program, Ref
from fairway.reduce.record import record
from fairway.reduce.replay import replay
from fairway.reduce.trial import Bench, Case, Seen, Signature, dynamic
from fairway.rewrite.find import suspects
from fairway.runtimes.eager import as_exported, run_eager
from fairway.subject.example import choose_example
from fairway.subject.outputs import output_leaves
from fairway.subject.subject import Subject

Progress = Callable[[Any], None]

OTHERS = 16
"""Other inputs at which a file is run: sizes from the bounds inwards, and values at the edges of what is legal."""

POINTED = 200
"""Calls: up to here a part is tried before all of them are, which may take a minute."""


@dataclass(frozen=True)
class Start:
    """A failure, and what it is cut down from."""

    bench: Bench
    seen: Seen
    whole: Program
    program: Program
    """The calls that fail in the same way: all of them, or a part that was found at once."""
    cut: bool
    """Whether it is such a part."""


def recorded(subject: Subject) -> tuple[Program, list[list[torch.Tensor]]]:
    """The model at its example, and how its variables are at other sizes and with other values; the inputs of both."""
    tensors = subject.make(subject.example, 1, "normal")
    program = record(subject, tensors)
    check_faithful(subject, program, tensors)
    others: list[Mapping[Ref, Any]] = []
    samples = [tensors]
    for sample in subject_lattice(subject, "standard")[1:]:
        with suppress(Exception):  # a point that PyTorch refuses shows nothing of the exporter
            given = sample_inputs(subject, sample, [])
            other = record(subject, given)
            if program.same_calls(other):
                others.append(other.seen)
                samples.append(given)
            del other
        gc.collect()  # a recording holds every value of a run, in circles: dozens of them would fill the memory
        if len(others) == OTHERS:
            break
    return program.compared(others), samples


def telling(subject: Subject) -> Subject:
    """With an example whose sizes are no fixed one's: inside the model a dim is known by its size alone."""
    fixed = {size.fixed for spec in subject.spec for size in spec.shape}
    if fixed.isdisjoint(subject.example.values()):
        return subject
    return replace(subject, example=choose_example(subject.domain, subject.spec, {}))


class Plain(torch.nn.Module):
    """The model itself, with plain tensors in and out."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model = subject.model
        self._call = subject.call

    def forward(self, *tensors: torch.Tensor) -> Any:
        args, kwargs = self._call(tensors)
        return tuple(leaf.value for leaf in output_leaves(self.model(*args, **kwargs)))


def check_faithful(subject: Subject, program: Program, tensors: list[torch.Tensor]) -> None:
    """The calls must give what the model gives; else what is cut down is another model."""
    with torch.no_grad():
        got = replay(program)(*(tensor.clone() for tensor in tensors))
    wanted = run_eager(subject, tensors)
    close = (torch.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True) for a, b in zip(wanted, got, strict=False))
    if len(got) > len(wanted) or not all(close):
        raise complain("FW505", f"{len(program.calls)} calls of {subject.name} were written down")


def failing(
    subject: Subject, folder: Path, exporters: Sequence[str], check: str | None, clock: Clock, progress: Progress
) -> Start | None:
    """The first exporter that fails on the model, and where to start. None where none does anything wrong."""
    subject = telling(subject)
    subject.model.eval()
    progress(("stage", "writing down the model's calls"))
    whole, samples = recorded(subject)
    for exporter in exporters:
        progress(("stage", f"all {len(whole.calls)} calls by {exporter}"))
        bench = Bench(exporter, clock.limit)
        case = Case(Plain(subject).eval(), tuple(samples), dynamic(whole, samples[0]))
        seen = Bench(exporter, clock.generous).judge(case)
        if check is not None:
            if checks(whole, exporter, check):
                seen = Seen(Signature("check", "kept by", check), seen.said)
                plain = _at(whole, seen)
                kept = resume(folder, plain, exporter, Signature("check", "kept by", check))
                return Start(bench, seen, plain, kept or plain, kept is not None)
        elif seen.signature is not None:
            return _start(subject, folder, bench, seen, whole, clock, progress)
    return None


def _start(
    subject: Subject, folder: Path, bench: Bench, seen: Seen, whole: Program, clock: Clock, progress: Progress
) -> Start:
    """What an earlier run left, the place that the failure names, or all calls: the first that fails in this way."""
    assert seen.signature is not None
    plain = _at(whole, seen)
    narrowed = replace(seen, other=0 if plain.others else None)
    kept = resume(folder, plain, bench.exporter, seen.signature)
    if kept is not None and bench(kept).signature == seen.signature:
        progress(("stage", f"goes on with the {len(kept.calls)} calls that an earlier run left"))
        return Start(bench, narrowed, plain, kept, cut=True)
    progress(("stage", f"{seen.signature.code}: the lines that it names"))
    for recording in (plain, *_told(subject, whole, seen)):
        part = _pointed(recording, seen, bench, clock)
        if part is not None:
            return Start(bench, narrowed, recording, part, cut=True)
    ends: dict[str, None] = {}
    progress(("stage", f"{seen.signature.code}: the calls without the model"))
    for program in _ways(subject, whole, seen.signature):
        began = time.monotonic()
        again = Bench(bench.exporter, clock.generous)(program)
        if again.signature == seen.signature:
            clock.last = time.monotonic() - began  # if nothing smaller fails, what is to come takes as long
            program = _at(program, again)
            return Start(bench, replace(again, other=0 if program.others else None), program, program, cut=False)
        ends[str(again.signature or again.said)] = None
    said = f"by {bench.exporter} the model fails: {seen.signature}; its calls: {', '.join(ends)}"
    raise not_by_calls(subject, said)


def _at(program: Program, seen: Seen) -> Program:
    """Tried, besides the example, at that other input alone at which the failure was seen."""
    return replace(program, others=() if seen.other is None else (program.others[seen.other],))


def _told(subject: Subject, whole: Program, seen: Seen) -> list[Program]:
    """The calls that the model makes when told that it is exported, where no line that is named made any other."""
    if seen.lines and not places(seen.lines, whole):
        with suppress(Exception), as_exported():
            return [_at(recorded(subject)[0], seen)]
    return []


def _pointed(start: Program, seen: Seen, bench: Bench, clock: Clock) -> Program | None:
    """The part around a line of the model's own that the failure names, if that fails in the same way."""
    assert seen.signature is not None
    if seen.signature.stage == "compare":
        return None  # that something is wrong shows at the end, not where it went wrong
    part = aim(start, seen, bench, lambda p: bench(p).signature == seen.signature, clock.enough, POINTED)
    return None if part is start else part


def not_by_calls(subject: Subject, seen: str) -> UserError:
    """Where a line of the model decides how many calls there are, that line is the cause, and it is named."""
    args, kwargs = subject.call(subject.make(subject.example, 1, "normal"))
    given = inspect.signature(subject.model.forward).bind(*args, **kwargs).arguments
    lines = [] if isinstance(subject.model, torch.jit.ScriptModule) else suspects(subject.model, given)
    if not lines:
        return complain("FW505", seen)
    return complain(
        "FW505", f"{seen}; in the model's own code {lines[0].detail}", where=lines[0].where,
        todo=("Look at the line named first: it is in the model, not in the exporter.",
              "fairway export RECIPE tries to repair it."),
    )  # fmt: skip


def _ways(subject: Subject, whole: Program, failure: Signature) -> Iterator[Program]:
    """The model's calls, as they may look to an exporter, the likeliest first; each costs as much as the model."""
    asks = any(call.name == "torch.Tensor.__bool__" for call in whole.calls)
    if asks and failure.code != "FW303":
        yield whole.undecided()  # the exporter got past those questions, as models ask some only in eager mode
    yield whole
    if any(tensor.requires_grad for tensor in whole.weights.values()):
        yield whole.untrained()
    if not asks or failure.code == "FW303":
        yield whole.undecided()
    told = whole
    with suppress(Exception), as_exported():
        told, _ = recorded(subject)
    if not whole.same_calls(told):
        yield told
        yield told.undecided()
