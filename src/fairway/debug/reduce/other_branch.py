"""Where a model goes another way at another input: the question that was answered otherwise, and its answer.

A tracer writes down the way that the example took, and the file takes it at every input. What comes after the parting
has no counterpart at the other input. What decided it has, and it is what the file has wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fairway.debug.reduce.program import Program, ProgramCall, Ref
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.trial_export import FailureSignature

LONG = 4096
"""A larger answer is no size for a tensor."""


def parted(whole: Program, other: Program, failure: FailureSignature) -> Program | None:
    """The calls up to the last question before the ways part, with its answer as a tensor: a number where the model's
    numbers were wrong, a size where its shape was.

    None where no answer differs, or where the failure is of another kind.
    """
    if failure.stage != "compare" or failure.detail not in ("numbers", "shape"):
        return None
    at = _question(whole, other)
    if at is None:
        return None
    asked = whole.calls[at]
    answers = [table[Ref(asked.var)] for table in (whole.seen, other.seen)]
    if failure.detail == "shape" and not all(0 <= answer <= LONG for answer in answers):
        return None
    told = _told(asked, max(call.var for call in whole.calls) + 1, failure.detail == "shape")
    outputs = (Ref(told[-1].var),)
    calls = (*whole.calls[: at + 1], *told)
    weights = {ref: tensor for ref, tensor in whole.weights.items() if any(ref in call.reads() for call in calls)}
    program = replace(whole, calls=calls, outputs=outputs, weights=weights, others=(other.seen,))
    seen, elsewhere = (_with_answer(program, table, asked) for table in (whole.seen, other.seen))
    return replace(program, seen=seen, others=(elsewhere,)).only(calls)


def _question(whole: Program, other: Program) -> int | None:
    """The position of the last call that decides something, and otherwise, before the two have different calls."""
    found = None
    for i, (ours, theirs) in enumerate(zip(whole.calls, other.calls, strict=False)):
        if (ours.var, ours.name) != (theirs.var, theirs.name):
            break
        ref = Ref(ours.var)
        if ours.decides and ref in whole.seen and whole.seen[ref] != other.seen.get(ref):
            found = i
    return found


def _told(asked: ProgramCall, var: int, as_size: bool) -> list[ProgramCall]:
    answer = Ref(asked.var)
    if not as_size:
        return [ProgramCall(var, "torch.tensor", (answer,), {}, asked.module)]
    number = ProgramCall(var, "mul", (answer, 1), {}, asked.module)  # a yes or no is no size
    return [number, ProgramCall(var + 1, "torch.ones", ((Ref(var),),), {}, asked.module)]


def _with_answer(program: Program, table: Mapping[Ref, Any], asked: ProgramCall) -> dict[Ref, Any]:
    """The values at one input that still mean the same, and those that were added."""
    made = {call.var for call in program.calls}
    kept = {ref: value for ref, value in table.items() if ref.var in made or ref in program.inputs}
    with torch.no_grad():
        (answer,) = replay(program)(*(table[ref].clone() for ref in program.inputs))
    numbers = {Ref(call.var): int(table[Ref(asked.var)]) for call in program.calls[-2:] if call.name == "mul"}
    return {**kept, **numbers, program.outputs[0]: answer}
