"""Find the decision that takes another branch at another input, and its answer.

A tracer records the branch of the example, and the file takes it at every input. Calls after the parting have no
counterpart at the other input. The value that decided does, and it is wrong in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from fairway.debug.reduce.program import Program, ProgramCall, Ref, Value
from fairway.debug.reduce.program_replay import replay
from fairway.debug.reduce.trial_export import FailureSignature

MAX_SIZE_ANSWER = 4096
"""A larger answer cannot be the size of a tensor."""


def find_parting(full_program: Program, other: Program, failure: FailureSignature) -> Program | None:
    """Return the calls up to the last decision before the branches part, with its answer as a tensor.

    The answer is a number if the model's numbers were wrong, and a size if its shape was. None if no answer differs, or
    if the failure is of another kind.
    """
    if failure.stage != "compare" or failure.detail not in ("numbers", "shape"):
        return None
    at = _find_decision(full_program, other)
    if at is None:
        return None
    decision = full_program.calls[at]
    answers = [table[Ref(decision.var)] for table in (full_program.seen, other.seen)]
    if failure.detail == "shape" and not all(0 <= answer <= MAX_SIZE_ANSWER for answer in answers):
        return None
    answer_calls = _make_answer_calls(
        decision, max(call.var for call in full_program.calls) + 1, failure.detail == "shape"
    )
    outputs = (Ref(answer_calls[-1].var),)
    calls = (*full_program.calls[: at + 1], *answer_calls)
    weights = {
        ref: tensor for ref, tensor in full_program.weights.items() if any(ref in call.list_refs() for call in calls)
    }
    program = replace(full_program, calls=calls, outputs=outputs, weights=weights, others=(other.seen,))
    seen, elsewhere = (_add_answer(program, table, decision) for table in (full_program.seen, other.seen))
    return replace(program, seen=seen, others=(elsewhere,)).keep_calls(calls)


def _find_decision(full_program: Program, other: Program) -> int | None:
    """Return the position of the last decision with different answers before the calls differ."""
    position = None
    for i, (ours, theirs) in enumerate(zip(full_program.calls, other.calls, strict=False)):
        if (ours.var, ours.name) != (theirs.var, theirs.name):
            break
        ref = Ref(ours.var)
        if ours.is_decision and ref in full_program.seen and full_program.seen[ref] != other.seen.get(ref):
            position = i
    return position


def _make_answer_calls(decision: ProgramCall, var: int, as_size: bool) -> list[ProgramCall]:
    answer = Ref(decision.var)
    if not as_size:
        return [ProgramCall(var, "torch.tensor", (answer,), {}, decision.module)]
    number = ProgramCall(var, "mul", (answer, 1), {}, decision.module)  # turns a bool into a size
    return [number, ProgramCall(var + 1, "torch.ones", ((Ref(var),),), {}, decision.module)]


def _add_answer(program: Program, table: Mapping[Ref, Value], decision: ProgramCall) -> dict[Ref, Value]:
    """Return the values at one input that are still valid, and those of the added calls."""
    variables = {call.var for call in program.calls}
    kept = {ref: value for ref, value in table.items() if ref.var in variables or ref in program.inputs}
    with torch.no_grad():
        (answer,) = replay(program)(*(table[ref].clone() for ref in program.inputs))
    numbers = {Ref(call.var): int(table[Ref(decision.var)]) for call in program.calls[-2:] if call.name == "mul"}
    return {**kept, **numbers, program.outputs[0]: answer}
