"""Smaller and smaller programs that still fail in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fairway.reduce.draw import draw
from fairway.reduce.program import Program, Ref
from fairway.reduce.simplify import Fails, plain_constants, plain_dtypes, small_sizes


def shrink(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Submodules, then stretches of calls, then single calls; then outputs, weights and inputs, down to constants."""
    steps = (
        submodule, ends, stretch, singly, outputs, singly, untrained, drawn_weights, drawn_inputs, plain_dtypes,
        plain_constants, small_sizes,
    )  # fmt: skip
    for step in steps:
        if enough():
            return drawn_numbers(program, fails)
        program = step(program, fails, enough)
    return program


def drawn_numbers(program: Program, fails: Fails) -> Program:
    """All numbers drawn at once, also where time is up: a script with pages of numbers helps nobody."""

    def table(values: Mapping[Ref, Any], refs: Iterable[Ref]) -> dict[Ref, Any]:
        return {**values, **{ref: draw(values[ref]) for ref in refs if values[ref].dtype.is_floating_point}}

    part = replace(
        program, seen=table(program.seen, program.inputs), weights=table(program.weights, program.weights),
        others=tuple(table(other, program.inputs) for other in program.others),
    )  # fmt: skip
    return part if fails(part) else program


def submodule(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """The deepest module whose calls alone fail. Of equal ones the first: a stack of layers is tried once."""
    inside = ""
    while not enough():
        depth = len(inside.split(".")) if inside else 0
        below = {_head(c.module, depth + 1): None for c in program.calls if c.module and _within(c.module, inside)}
        for path in below:
            if path == inside or not path:
                continue
            part = program.only([c for c in program.calls if _within(c.module, path)])
            if part.calls and len(part.calls) < len(program.calls) and fails(part):
                program, inside = part, path
                break
        else:
            return program
    return program


def _head(module: str, parts: int) -> str:
    return ".".join(module.split(".")[:parts])


def _within(module: str, path: str) -> bool:
    return not path or module == path or module.startswith(path + ".")


def ends(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Where the failure is in one place, as it mostly is: halves away what comes after it, then what comes before."""
    for front in (True, False):
        low, high = 1, len(program.calls)
        while low < high and not enough():
            size = (low + high) // 2
            part = program.only(program.calls[:size] if front else program.calls[-size:])
            if fails(part):
                program, high = part, len(part.calls)
            else:
                low = size + 1
    return program


def stretch(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Leaves out large pieces first: halves, quarters, and so on, from either end and within."""
    size = max(1, len(program.calls) // 2)
    while size >= 2 and not enough():
        start, smaller = 0, False
        while start < len(program.calls) and not enough():
            left = [*program.calls[:start], *program.calls[start + size :]]
            part = program.only(left) if left else None
            if part is not None and fails(part):
                program, smaller = part, True
            else:
                start += size
        size = size // 2 if not smaller else min(size, max(1, len(program.calls) // 2))
    return program


def singly(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Call by call, from the last, until none can go."""
    again = True
    while again and not enough():
        again = False
        for call in reversed(program.calls):
            if enough() or len(program.calls) == 1:
                break
            part = program.only([c for c in program.calls if c is not call and c.var != call.var])
            if part.calls and fails(part):
                program, again = part, True
    return program


def outputs(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """One output, if one is enough."""
    for ref in program.outputs:
        part = replace(program, outputs=(ref,))
        if len(program.outputs) > 1 and not enough() and fails(part):
            return part
    return program


def untrained(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """No gradients, if the failure does not hang on them."""
    if not any(tensor.requires_grad for tensor in program.weights.values()):
        return program
    part = program.untrained()
    return part if not enough() and fails(part) else program


def drawn_weights(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Weights become fresh random numbers, which a script can draw; those that matter stay as they are."""
    for ref, tensor in program.weights.items():
        drawn = draw(tensor).requires_grad_(tensor.requires_grad)
        part = replace(program, weights={**program.weights, ref: drawn})
        if not enough() and fails(part):
            program = part
    return program


def drawn_inputs(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Inputs drawn anew, as a script would draw them."""
    for ref in program.inputs:
        others = tuple({**table, ref: draw(table[ref])} for table in program.others)
        part = replace(program, seen={**program.seen, ref: draw(program.seen[ref])}, others=others)
        if not enough() and fails(part):
            program = part
    return program
