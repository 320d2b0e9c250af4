"""From a model whose export fails to the smallest script that fails in the same way."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fairway.errors import UserError, complain
from fairway.evidence.gather import subject_lattice
from fairway.evidence.judge import sample_inputs
from fairway.ladder.tables import build_tables
from fairway.reduce.aim import aim
from fairway.reduce.program import Program, Ref
from fairway.reduce.record import record
from fairway.reduce.replay import replay
from fairway.reduce.report import Reduced, write_report
from fairway.reduce.script import title_of, write_script
from fairway.reduce.shrink import shrink
from fairway.reduce.trial import EXPORTERS, Bench, Case, Seen, Signature, dynamic, failed_script
from fairway.rewrite.find import suspects
from fairway.runtimes.eager import as_exported, run_eager
from fairway.subject.outputs import output_leaves
from fairway.subject.subject import Subject

Progress = Callable[[Any], None]

STATE = "state.json"

LOADING = 10.0
"""Seconds until a fresh Python has torch and onnxruntime, on a busy machine."""

OTHERS = 16
"""Other inputs at which a file is run: sizes from the bounds inwards, and values at the edges of what is legal."""


def reduce_subject(
    subject: Subject, folder: Path, exporter: str | None, check: str | None, budget: float, limit: float,
    progress: Progress,
) -> Reduced | None:  # fmt: skip
    """Writes repro.py and report.md into `folder`. None where the stock exporter does nothing wrong.

    `check` is a command that is given a candidate script, and says by exit code 0 that it is still of interest.
    `budget` bounds the whole, `limit` each trial, in seconds.
    """
    clock = _Clock(budget, limit)
    build_tables()
    found = _failing(subject, [exporter] if exporter else list(EXPORTERS), check, clock, progress)
    if found is None:
        return None
    bench, seen, whole, start = found
    keeper = _Keeper(folder, whole, bench.exporter, seen)
    program = keeper.resume()

    def fails(candidate: Program) -> bool:
        began = time.monotonic()
        same = _checks(candidate, bench.exporter, check) if check else bench(candidate).signature == seen.signature
        if same:
            clock.last = time.monotonic() - began
            keeper.keep(candidate)
            progress(("stage", f"{len(candidate.calls)} calls, {candidate.operators} operators left"))
        return same

    if program is not whole and not fails(program):
        program = whole  # what was kept is of another torch, or of other weights
    if program is whole and start is not whole:
        keeper.keep(start)
        program = start
    elif program is whole and not check:
        program = aim(program, seen, bench, fails, clock.enough)
    program = shrink(program, fails, clock.enough)
    finished = not clock.enough()
    title = title_of(seen, program, bench.exporter)
    script = write_script(program, bench.exporter, title)
    progress(("stage", "the script on its own"))
    reproduced = _runs_alone(script, seen, check, clock)
    progress(("stage", "what it is not"))
    ruled_out = _rule_out(program, bench, seen, clock)
    reduced = Reduced(
        bench.exporter, seen, len(whole.calls), program, title, script, reproduced, finished, bench.tried,
        time.monotonic() - clock.started, ruled_out,
    )  # fmt: skip
    keeper.finish(reduced)
    return reduced


class _Clock:
    """How long there is for cutting, so that what comes after it ends in time too."""

    def __init__(self, budget: float, limit: float) -> None:
        self.started = time.monotonic()
        self.limit = limit
        self.last = 0.0
        """Seconds that the last trial took which was a step forward; those to come take about as long."""
        self._budget = budget

    @property
    def left(self) -> float:
        return self.started + self._budget - time.monotonic()

    @property
    def generous(self) -> float:
        """A limit for a trial of everything: cut off too early, it would be taken for one that does not end."""
        return max(self.limit, self.left / 3)

    def enough(self) -> bool:
        """To come are: all numbers drawn, the script in a Python that has to load torch first, two for the report."""
        closing = min(self._budget / 3, LOADING + 5 * self.last)
        return self.left < closing


def _recorded(subject: Subject) -> tuple[Program, list[list[torch.Tensor]]]:
    """The model at its example, and how its variables are at other sizes and with other values; the inputs of both."""
    tensors = subject.make(subject.example, 1, "normal")
    program = record(subject, tensors)
    _check_faithful(subject, program, tensors)
    others: list[Mapping[Ref, Any]] = []
    samples = [tensors]
    for sample in subject_lattice(subject, "standard")[1:]:
        with suppress(Exception):  # a point that PyTorch refuses shows nothing of the exporter
            given = sample_inputs(subject, sample, [])
            other = record(subject, given)
            if program.same_calls(other):
                others.append(other.seen)
                samples.append(given)
        if len(others) == OTHERS:
            break
    return program.compared(others), samples


class Plain(torch.nn.Module):
    """The model itself, with plain tensors in and out."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model = subject.model
        self._call = subject.call

    def forward(self, *tensors: torch.Tensor) -> Any:
        args, kwargs = self._call(tensors)
        return tuple(leaf.value for leaf in output_leaves(self.model(*args, **kwargs)))


def _check_faithful(subject: Subject, program: Program, tensors: list[torch.Tensor]) -> None:
    """The calls must give what the model gives; else what is cut down is another model."""
    with torch.no_grad():
        got = replay(program)(*(tensor.clone() for tensor in tensors))
    wanted = run_eager(subject, tensors)
    close = (torch.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True) for a, b in zip(wanted, got, strict=False))
    if len(got) > len(wanted) or not all(close):
        raise complain("FW505", f"{len(program.calls)} calls of {subject.name} were written down")


def _failing(
    subject: Subject, exporters: Sequence[str], check: str | None, clock: _Clock, progress: Progress
) -> tuple[Bench, Seen, Program, Program] | None:
    """The first exporter that fails on the model, how, its calls, and those of them that fail in the same way."""
    subject.model.eval()
    progress(("stage", "writing down the model's calls"))
    whole, samples = _recorded(subject)
    for exporter in exporters:
        progress(("stage", f"the whole model by {exporter}"))
        bench = Bench(exporter, clock.limit)
        case = Case(Plain(subject).eval(), tuple(samples), dynamic(whole, samples[0]))
        seen = Bench(exporter, clock.generous).judge(case)
        if check is not None:
            if _checks(whole, exporter, check):
                seen = replace(seen, signature=Signature("check", "kept by", check), other=None)
                return bench, seen, replace(whole, others=()), replace(whole, others=())
            continue
        if seen.signature is None:
            continue
        progress(("stage", f"{seen.signature.code}: the line that it names"))
        part = _pointed(whole, seen, bench, clock)
        if part is not None:
            return bench, replace(seen, other=0 if part.others else None), _at(whole, seen), part
        ends: dict[str, None] = {}
        progress(("stage", f"{seen.signature.code}: all {len(whole.calls)} calls"))
        for program in _ways(subject, whole, seen.signature):
            again = Bench(exporter, clock.generous)(program)
            if again.signature == seen.signature:
                program = _at(program, again)
                return bench, replace(again, other=0 if program.others else None), program, program
            ends[str(again.signature or again.said)] = None
        raise _not_by_calls(subject, f"by {exporter} the model fails: {seen.signature}; its calls: {', '.join(ends)}")
    return None


def _at(program: Program, seen: Seen) -> Program:
    """Tried, besides the example, at that other input alone at which the failure was seen."""
    return replace(program, others=() if seen.other is None else (program.others[seen.other],))


POINTED = 80
"""Calls: up to here a part is tried before all of them are, which may take a minute."""


def _pointed(whole: Program, seen: Seen, bench: Bench, clock: _Clock) -> Program | None:
    """The part around a line of the model's own that the failure names, if that fails in the same way."""
    assert seen.signature is not None
    if seen.signature.stage == "compare":
        return None  # that something is wrong shows at the end, not where it went wrong
    start = _at(whole, seen)
    part = aim(start, seen, bench, lambda p: bench(p).signature == seen.signature, clock.enough, POINTED)
    return None if part is start else part


def _not_by_calls(subject: Subject, seen: str) -> UserError:
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
        told, _ = _recorded(subject)
    if not whole.same_calls(told):
        yield told
        yield told.undecided()


def _checks(program: Program, exporter: str, check: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repro.py"
        path.write_text(write_script(program, exporter, "a candidate"))
        done = subprocess.run([*shlex.split(check), str(path)], cwd=folder, capture_output=True)
        return done.returncode == 0


def _runs_alone(script: str, seen: Seen, check: str | None, clock: _Clock) -> bool:
    """The script in a Python of its own, outside the user's folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repro.py"
        path.write_text(script)
        if check is not None:
            return subprocess.run([*shlex.split(check), str(path)], cwd=folder, capture_output=True).returncode == 0
        try:
            clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            seconds = max(clock.left, clock.limit + LOADING)  # else what was cut down would stay unproven
            done = subprocess.run(
                [sys.executable, str(path)], cwd=folder, capture_output=True, text=True, timeout=seconds, env=clean
            )
        except subprocess.TimeoutExpired:
            return seen.signature is not None and seen.signature.stage == "time"
        return failed_script(done.returncode, done.stderr, seen)


def _rule_out(program: Program, bench: Bench, seen: Seen, clock: _Clock) -> dict[str, str]:
    """What the failure is not, each tried while there is time."""
    found = {"PyTorch itself": "runs the same module at the same inputs"}
    other = next(name for name in EXPORTERS if name != bench.exporter)
    trials = {
        f"the other exporter (dynamo={other == 'dynamo'})": (other, program),
        "all sizes fixed": (bench.exporter, program.closed()),
    }
    for what, (exporter, part) in trials.items():
        seconds = min(clock.limit, clock.left)
        seen_there = Bench(exporter, seconds)(part) if seconds > 0 else Seen(None, "not tried: the time was up")
        found[what] = _outcome(seen_there, seen)
    return found


def _outcome(said: Seen, seen: Seen) -> str:
    if said.signature is None:
        return "right" if said.said == "right" else said.said
    same = "fails in the same way" if said.signature == seen.signature else "fails otherwise"
    return f"{same}: {' '.join(said.said.split())[:160]}"


class _Keeper:
    """Keeps the best so far on the disk, so that a kill loses nothing."""

    def __init__(self, folder: Path, whole: Program, exporter: str, seen: Seen) -> None:
        self._folder, self._whole, self._exporter, self._seen = folder, whole, exporter, seen
        self._mark = [exporter, str(seen.signature), [[c.var, c.name] for c in whole.calls]]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise complain("FW009", f"{folder}: {error.strerror}") from error

    def resume(self) -> Program:
        """Where an earlier run of the same model was, if there was one."""
        try:
            state = json.loads((self._folder / STATE).read_text())
            if state["mark"] != self._mark:
                return self._whole
            kept = set(state["calls"])
            program = self._whole.only([call for call in self._whole.calls if call.var in kept])
            if state["closed"]:
                program = program.closed()
            if state["held"]:
                program = program.held_back()
            outputs = tuple(Ref(var, tuple(path)) for var, path in state["outputs"])
            return replace(program, outputs=outputs)
        except (OSError, ValueError, KeyError, TypeError):
            return self._whole

    def keep(self, program: Program) -> None:
        state = {
            "mark": self._mark,
            "calls": [call.var for call in program.calls],
            "outputs": [[ref.var, list(ref.path)] for ref in program.outputs],
            "closed": not program.dims,
            "held": program.held,
        }
        self._put(STATE, json.dumps(state))
        self._put("repro.py", write_script(program, self._exporter, title_of(self._seen, program, self._exporter)))

    def finish(self, reduced: Reduced) -> None:
        self._put("repro.py", reduced.script)
        self._put("report.md", write_report(reduced))
        (self._folder / STATE).unlink(missing_ok=True)

    def _put(self, name: str, text: str) -> None:
        """Whole or not at all."""
        fresh = self._folder / f".{name}.new"
        fresh.write_text(text)
        fresh.replace(self._folder / name)

