"""Find how a model fails, and the calls that fail in the same way: the start of cutting."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from fairway.convert.rewrite.find import find_suspects
from fairway.debug.reduce.best_so_far import read_best_so_far
from fairway.debug.reduce.call_recorder import record_calls
from fairway.debug.reduce.first_cut import cut_to_suspect
from fairway.debug.reduce.last_checks import TimeBudget, passes_check
from fairway.debug.reduce.other_branch import find_parting
from fairway.debug.reduce.program import NUMBER_QUESTIONS, TENSOR_QUESTIONS, Program
from fairway.debug.reduce.recorded_model import Recording, choose_distinct_sizes, record_model
from fairway.debug.reduce.suspect_calls import find_places
from fairway.debug.reduce.trial_export import FailureSignature, TrialCase, TrialOutcome, TrialRunner, list_dynamic_axes
from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.judge.runtimes.eager import set_export_flags
from fairway.model.outputs import find_output_leaves
from fairway.model.signatures import read_forward_signature
from fairway.model.subject import Subject
from fairway.record.progress import EventSink, StageStarted, StillWorking

NAMED_LINES_SHARE = 0.5
"""The share of the remaining time for the lines that a failure names, before all calls are tried."""

MAX_NAMED_CALLS = 200
"""A part with at most so many calls is tried before all of them are, which may take a minute."""


@dataclass(frozen=True)
class Start:
    """A failure, and the program to cut down."""

    runner: TrialRunner
    seen: TrialOutcome
    full_program: Program
    program: Program
    """The calls that fail in the same way: all of them, or a part that was found at once."""
    is_part: bool
    """Tells whether `program` is such a part."""


class PlainModel(torch.nn.Module):
    """The model itself, with plain tensors in and out."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model = subject.model
        self._call = subject.call

    def forward(self, *tensors: torch.Tensor) -> object:
        args, kwargs = self._call(tensors)
        return tuple(leaf.value for leaf in find_output_leaves(self.model(*args, **kwargs)))


def find_failure(
    subject: Subject,
    folder: Path,
    exporters: Sequence[str],
    check: str | None,
    time_budget: TimeBudget,
    on_event: EventSink,
) -> Start | None:
    """Return the first exporter that fails on the model, and where to start; None if none does anything wrong."""
    subject = choose_distinct_sizes(subject)
    subject.model.eval()
    on_event(StageStarted("recording the model's calls"))
    recording = record_model(subject)
    full_program, samples = recording.program, recording.samples
    tick = partial(on_event, StillWorking())
    for exporter in exporters:
        on_event(StageStarted(f"all {len(full_program.calls)} calls by {exporter}"))
        runner = TrialRunner(exporter, time_budget.limit, tick)
        case = TrialCase(
            PlainModel(subject).eval(),
            (*samples, *recording.other_branch_samples),
            list_dynamic_axes(full_program, samples[0]),
        )
        seen = TrialRunner(exporter, time_budget.generous_limit, tick).judge(case)
        if check is not None:
            if passes_check(full_program, exporter, check):
                seen = TrialOutcome(FailureSignature("check", "kept by", check), seen.message)
                plain = _keep_failing_input(full_program, seen)
                earlier = read_best_so_far(folder, plain, exporter, FailureSignature("check", "kept by", check))
                return Start(runner, seen, plain, earlier or plain, earlier is not None)
        elif seen.signature is not None:
            if seen.other is not None and seen.other >= len(full_program.others):
                return _start_at_other_branch(_Failure(subject, folder, runner, seen), recording)
            return _start_from_calls(_Failure(subject, folder, runner, seen), full_program, time_budget, on_event)
    return None


@dataclass(frozen=True)
class _Failure:
    """A failure of the model by one exporter."""

    subject: Subject
    folder: Path
    runner: TrialRunner
    seen: TrialOutcome


def _start_at_other_branch(failure: _Failure, recording: Recording) -> Start:
    """Start from the decision that the model makes differently at the input at which the file is wrong."""
    subject, runner, seen = failure.subject, failure.runner, failure.seen
    assert seen.signature is not None
    assert seen.other is not None
    full_program = recording.program
    inputs = recording.other_branch_samples[seen.other - len(full_program.others)]
    program = find_parting(full_program, record_calls(subject, inputs, recording.tracks_reads), seen.signature)
    if program is None or runner(program).signature != seen.signature:
        message = f"by {runner.exporter} the file is wrong where the model takes another branch: {seen.signature}"
        raise make_not_by_calls_error(subject, message)
    earlier = read_best_so_far(failure.folder, program, runner.exporter, seen.signature)
    return Start(runner, replace(seen, other=0), program, earlier or program, is_part=earlier is not None)


def _start_from_calls(failure: _Failure, full_program: Program, time_budget: TimeBudget, on_event: EventSink) -> Start:
    """Start from an earlier run, the place that the failure names, or all calls: the first that fails in this way."""
    subject, folder, runner, seen = failure.subject, failure.folder, failure.runner, failure.seen
    assert seen.signature is not None
    plain = _keep_failing_input(full_program, seen)
    narrowed = replace(seen, other=0 if plain.others else None)
    recordings = [plain, plain.with_forced_decisions()] if seen.signature.code == Code.DATA_DEPENDENT else [plain]
    for recording in recordings:
        earlier = read_best_so_far(folder, recording, runner.exporter, seen.signature)
        if earlier is not None and runner(earlier).signature == seen.signature:
            on_event(StageStarted(f"continuing with the {len(earlier.calls)} calls of an earlier run"))
            return Start(runner, narrowed, recording, earlier, is_part=True)
    on_event(StageStarted(f"{seen.signature.code}: the lines that it names"))
    for recording in (*recordings, *_record_as_exported(subject, full_program, seen)):
        part = _cut_to_named_lines(recording, seen, runner, time_budget)
        if part is not None:
            return Start(runner, narrowed, recording, part, is_part=True)
    outcomes: dict[str, None] = {}
    on_event(StageStarted(f"{seen.signature.code}: the calls without the model"))
    for program in _list_variants(subject, full_program, seen.signature):
        began = time.monotonic()
        earlier = read_best_so_far(folder, _keep_failing_input(program, seen), runner.exporter, seen.signature)
        if earlier is not None and runner(earlier).signature == seen.signature:
            return Start(runner, narrowed, _keep_failing_input(program, seen), earlier, is_part=True)
        again = TrialRunner(runner.exporter, time_budget.generous_limit)(program)
        if again.signature == seen.signature:
            # If nothing smaller fails, later trials take as long.
            time_budget.last_trial_seconds = time.monotonic() - began
            program = _keep_failing_input(program, again)
            return Start(runner, replace(again, other=0 if program.others else None), program, program, is_part=False)
        outcomes[str(again.signature or again.message)] = None
    message = f"by {runner.exporter} the model fails: {seen.signature}; its calls: {', '.join(outcomes)}"
    raise make_not_by_calls_error(subject, message)


def _keep_failing_input(program: Program, seen: TrialOutcome) -> Program:
    """Keep, in addition to the example, only the input at which the failure was seen."""
    others = () if seen.other is None else program.others[seen.other : seen.other + 1]
    return replace(program, others=others)


def _record_as_exported(subject: Subject, full_program: Program, seen: TrialOutcome) -> list[Program]:
    """Record the calls that the model makes during an export, if no line that is named made a recorded call."""
    if seen.lines and not find_places(seen.lines, full_program):
        with suppress(Exception), set_export_flags():
            return [_keep_failing_input(record_model(subject).program, seen)]
    return []


def _cut_to_named_lines(
    start: Program, seen: TrialOutcome, runner: TrialRunner, time_budget: TimeBudget
) -> Program | None:
    """Return the part around a line of the model that the failure names, if it fails in the same way."""
    assert seen.signature is not None
    if seen.signature.stage == "compare":
        return None  # a wrong number shows at the end, not in the line that caused it
    until = time_budget.seconds_left * (1 - NAMED_LINES_SHARE)

    def is_used_up() -> bool:
        return time_budget.seconds_left < until or time_budget.is_used_up()

    part = cut_to_suspect(
        start, seen, runner, lambda p: runner(p).signature == seen.signature, is_used_up, MAX_NAMED_CALLS
    )
    return None if part is start else part


def make_not_by_calls_error(subject: Subject, seen: str) -> UserError:
    """Make the error for a failure that the calls alone do not show.

    If a line of the model decides how many calls there are, that line is the cause and is named.
    """
    args, kwargs = subject.call(subject.make(subject.example, 1, "normal"))
    arguments = read_forward_signature(subject.model).bind(*args, **kwargs).arguments
    lines = [] if isinstance(subject.model, torch.jit.ScriptModule) else find_suspects(subject.model, arguments)
    if not lines:
        return complain(Code.CALLS_NOT_SEEN, seen)
    return complain(
        Code.CALLS_NOT_SEEN,
        f"{seen}; in the model's own code {lines[0].detail}",
        where=lines[0].where,
        todo=(
            "Look at the line named first: it is in the model, not in the exporter.",
            "fairway export RECIPE tries to repair it.",
        ),
    )


def _list_variants(subject: Subject, full_program: Program, failure: FailureSignature) -> Iterator[Program]:
    """Yield the model's calls as an exporter may see them, likeliest first. Each costs as much as the model to try."""
    has_questions = any(call.name in (*TENSOR_QUESTIONS, *NUMBER_QUESTIONS) for call in full_program.calls)
    if has_questions and failure.code != Code.DATA_DEPENDENT:
        # Models ask some questions only in eager mode, and the exporter got past them.
        yield full_program.without_decisions()
    yield full_program
    if failure.code == Code.DATA_DEPENDENT:
        yield full_program.with_forced_decisions()
    if any(tensor.requires_grad for tensor in full_program.weights.values()):
        yield full_program.without_gradients()
    if not has_questions or failure.code == Code.DATA_DEPENDENT:
        yield full_program.without_decisions()
    exported = full_program
    with suppress(Exception), set_export_flags():
        exported = record_model(subject).program
    if not full_program.has_same_calls(exported):
        yield exported
        yield exported.without_decisions()
