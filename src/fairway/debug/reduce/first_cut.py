"""The first cut: straight to the calls that a failure points at, with as much before them as it takes.

A model of a thousand calls takes a minute to export, so halving it away costs more than most have time for. Where the
failure names a place, the place is tried alone first, then with what lies one step before it, two, four: a few trials
of small programs. Where it does not fail there, nothing is lost but those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from fairway.debug.reduce.program import Program, Ref
from fairway.debug.reduce.simplify import Fails
from fairway.debug.reduce.suspect_calls import Place, named, places
from fairway.debug.reduce.trial_export import Seen

Look = Callable[[Program], Seen]

PLACES = 2
"""How many of the places that a failure names are tried; the first is mostly the one."""

WHOLE = 0.7
"""Of all calls: a part larger than this is not worth a trial."""


def aim(
    program: Program, seen: Seen, look: Look, fails: Fails, enough: Callable[[], bool], most: float = math.inf
) -> Program:
    """The part around the place that the failure names; the program as it is where there is none that fails.

    `most` bounds the calls of what is tried.
    """
    found = (places(seen.lines, program) or named(_operator(seen), program))[:PLACES]
    if not found and seen.signature is not None and seen.signature.stage == "compare":
        found = first_wrong(program, look)
    tried: list[frozenset[int]] = []
    for steps in (0, 1, 2, 4, 8, 16, 32, 64):
        for place in found:
            keep = before(program, place, steps)
            if keep in tried or len(keep) > min(most, WHOLE * len(program.calls)) or enough():
                continue
            tried.append(keep)
            part = program.part([program.calls[i] for i in sorted(keep)])
            for way in ways(part, program.weights):
                if not enough() and fails(way):
                    return way
    return program


def _operator(seen: Seen) -> str:
    signature = seen.signature
    return signature.detail.split()[-1] if signature is not None and signature.code == "FW304" else ""


def ways(part: Program, weights: Mapping[Ref, torch.Tensor]) -> list[Program]:
    """As it is; with sizes fixed, as one that is cut off from its origin may fail by itself; behind trained weights.

    Where the failure was seen at another input than the example, only as it is: with sizes fixed there is no other.
    """
    if part.others:
        return [part]
    trained = any(tensor.requires_grad for tensor in weights.values())
    return [part, part.closed(), *([part.held_back()] if trained else [])]


def before(program: Program, place: Place, steps: int) -> Place:
    """The positions of calls and of those that they are computed from, so many steps back. What reads or reckons sizes
    is no step: cut off, a size becomes a constant, and what hangs on its being open would be gone."""
    made = {call.var: i for i, call in enumerate(program.calls)}
    left = dict.fromkeys(place, steps)
    ahead = list(place)
    while ahead:
        at = ahead.pop()
        for ref in program.calls[at].reads():
            source = made.get(ref.var)
            if source is None:
                continue
            remaining = left[at] - program.calls[source].computes
            if remaining >= 0 and remaining > left.get(source, -1):
                left[source] = remaining
                ahead.append(source)
    return frozenset(left)


def first_wrong(program: Program, look: Look) -> list[Place]:
    """The first call whose value is wrong in the file: every value is made an output, once."""
    outputs = exposed(program)
    seen = look(replace(program, outputs=outputs))
    if seen.output is None or seen.signature is None or seen.signature.stage != "compare":
        return []
    var = outputs[seen.output].var
    return [frozenset([i]) for i, call in enumerate(program.calls) if call.var == var]


def exposed(program: Program) -> tuple[Ref, ...]:
    """All tensors that calls give and a file can, in their order. Memory that is not yet written to is none."""
    made = {call.var: i for i, call in enumerate(program.calls) if "empty" not in call.name}
    refs = [
        ref
        for ref, value in program.seen.items()
        if ref.var in made and isinstance(value, torch.Tensor) and not value.is_complex()
    ]
    return tuple(sorted(refs, key=lambda ref: (made[ref.var], ref.path)))
