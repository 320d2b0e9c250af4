"""The first cut: straight to the calls that a failure points at, with as many calls before them as needed.

Exporting a model of a thousand calls takes a minute, so cutting it in halves would take too long. If the failure names
a place, it is tried alone first, then with the calls one, two and four steps before it: a few trials of small programs.
If it does not fail there, only those trials are lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from fairway.debug.reduce.program import Program, Ref
from fairway.debug.reduce.simplify import FailureTest
from fairway.debug.reduce.suspect_calls import Place, find_last_call, find_places
from fairway.debug.reduce.trial_export import TrialOutcome
from fairway.diagnostics import Code

TrialFunction = Callable[[Program], TrialOutcome]

MAX_PLACES = 2
"""The places named by a failure that are tried; the first is usually right."""

MAX_PART_SHARE = 0.7
"""A part with a larger share of all calls is not worth a trial."""


def cut_to_suspect(
    program: Program,
    seen: TrialOutcome,
    look: TrialFunction,
    fails: FailureTest,
    is_time_up: Callable[[], bool],
    max_calls: float = math.inf,
) -> Program:
    """Return the part around the place that the failure names; the whole program if no such part fails.

    `max_calls` limits the number of calls in a trial.
    """
    places = (find_places(seen.lines, program) or find_last_call(_read_operator(seen), program))[:MAX_PLACES]
    if not places and seen.signature is not None and seen.signature.stage == "compare":
        places = find_first_wrong(program, look)
    tried: list[frozenset[int]] = []
    for steps in (0, 1, 2, 4, 8, 16, 32, 64):
        for place in places:
            keep = collect_calls_before(program, place, steps)
            if keep in tried or len(keep) > min(max_calls, MAX_PART_SHARE * len(program.calls)) or is_time_up():
                continue
            tried.append(keep)
            part = program.cut_to([program.calls[i] for i in sorted(keep)])
            for variant in list_variants(part, program.weights):
                if not is_time_up() and fails(variant):
                    return variant
    return program


def _read_operator(seen: TrialOutcome) -> str:
    signature = seen.signature
    return signature.detail.split()[-1] if signature is not None and signature.code == Code.NO_TRANSLATION else ""


def list_variants(part: Program, weights: Mapping[Ref, torch.Tensor]) -> list[Program]:
    """Return the part itself, the part with fixed sizes, and the part with held gradients if weights have them.

    A part with open sizes may fail by itself when it is cut off from their origin. If the failure needs another input
    than the example, only the part itself is returned: fixed sizes allow no other input.
    """
    if part.others:
        return [part]
    has_gradients = any(tensor.requires_grad for tensor in weights.values())
    return [part, part.with_fixed_sizes(), *([part.with_held_gradients()] if has_gradients else [])]


def collect_calls_before(program: Program, place: Place, steps: int) -> Place:
    """Return the positions of calls and of the calls they are computed from, so many steps back.

    Reading or computing sizes is not a step: cut off, a size becomes a constant, and a failure that needs an open size
    would disappear.
    """
    call_by_variable = {call.var: i for i, call in enumerate(program.calls)}
    steps_left = dict.fromkeys(place, steps)
    pending = list(place)
    while pending:
        at = pending.pop()
        for ref in program.calls[at].list_refs():
            source = call_by_variable.get(ref.var)
            if source is None:
                continue
            remaining = steps_left[at] - program.calls[source].is_operator
            if remaining >= 0 and remaining > steps_left.get(source, -1):
                steps_left[source] = remaining
                pending.append(source)
    return frozenset(steps_left)


def find_first_wrong(program: Program, look: TrialFunction) -> list[Place]:
    """Return the first call whose value is wrong in the file, in one trial with every value as an output."""
    outputs = list_tensor_refs(program)
    seen = look(replace(program, outputs=outputs))
    if seen.output is None or seen.signature is None or seen.signature.stage != "compare":
        return []
    var = outputs[seen.output].var
    return [frozenset([i]) for i, call in enumerate(program.calls) if call.var == var]


def list_tensor_refs(program: Program) -> tuple[Ref, ...]:
    """List all tensors that calls return and files can output, in order, except uninitialized memory."""
    call_by_variable = {call.var: i for i, call in enumerate(program.calls) if "empty" not in call.name}
    refs = [
        ref
        for ref, value in program.seen.items()
        if ref.var in call_by_variable and isinstance(value, torch.Tensor) and not value.is_complex()
    ]
    return tuple(sorted(refs, key=lambda ref: (call_by_variable[ref.var], ref.path)))
