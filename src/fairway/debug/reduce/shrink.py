"""Smaller and smaller programs that still fail in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from fairway.debug.reduce.draw import draw
from fairway.debug.reduce.program import Program, Ref
from fairway.debug.reduce.simplify import Fails, plain_constants, plain_dtypes, small_sizes

FEW = 3
"""Operators that nobody minds in a report."""


def shrink(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Submodules, then stretches of calls, then single calls; then outputs, weights and inputs, down to constants."""
    steps = (
        submodule,
        at_once,
        closed,
        ends,
        stretch,
        singly,
        outputs,
        held_back,
        singly,
        untrained,
        contiguous,
        drawn_weights,
        drawn_inputs,
        plain_dtypes,
        plain_constants,
        small_sizes,
    )
    for step in steps:
        if enough():
            return drawn_numbers(program, fails)
        program = step(program, fails, enough)
    return program


def at_once(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """All numbers drawn, early: mostly none matters, and to write down those of a large part takes long each time."""
    return drawn_numbers(program, fails)


def closed(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """All sizes fixed, if the failure hangs on none: nothing then has to fit at other sizes, and trials are cheap."""
    part = program.closed()
    return part if program.dims and not enough() and fails(part) else program


def held_back(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Where much is left, perhaps only because a weight far off makes all behind it ask for a gradient."""
    trained = any(tensor.requires_grad for tensor in program.weights.values())
    if program.operators <= FEW or program.dims or program.held or not trained or enough():
        return program
    part = program.held_back()
    return stretch(part, fails, enough) if fails(part) else program


def contiguous(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Inputs and weights in plain memory, if the failure does not hang on how they lie."""
    for ref in (*program.inputs, *program.weights):
        kept = program.weights[ref] if ref in program.weights else program.seen[ref]
        if kept.is_contiguous() or enough():
            continue
        tables = [
            {**table, ref: draw(table[ref].detach().contiguous()).requires_grad_(table[ref].requires_grad)}
            if ref in table
            else table
            for table in (program.seen, program.weights, *program.others)
        ]
        part = replace(program, seen=tables[0], weights=tables[1], others=tuple(tables[2:]))
        if fails(part):
            program = part
    return program


def drawn_numbers(program: Program, fails: Fails) -> Program:
    """All numbers drawn at once, also where time is up: a script with pages of numbers helps nobody."""

    def table(values: Mapping[Ref, Any], refs: Iterable[Ref]) -> dict[Ref, Any]:
        return {**values, **{ref: _drawn(values[ref]) for ref in refs if values[ref].dtype.is_floating_point}}

    if all(map(_is_drawn, [*(program.seen[ref] for ref in program.inputs), *program.weights.values()])):
        return program
    part = replace(
        program,
        seen=table(program.seen, program.inputs),
        weights=table(program.weights, program.weights),
        others=tuple(table(other, program.inputs) for other in program.others),
    )
    return part if fails(part) else program


def _drawn(tensor: torch.Tensor) -> torch.Tensor:
    return draw(tensor).requires_grad_(tensor.requires_grad)


def _is_drawn(tensor: torch.Tensor) -> bool:
    return not tensor.dtype.is_floating_point or torch.equal(tensor, draw(tensor))


def submodule(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """The deepest module whose calls alone fail. Of equal ones the first: a stack of layers is tried once."""
    inside = ""
    while not enough():
        depth = len(inside.split(".")) if inside else 0
        below = {_head(c.module, depth + 1): None for c in program.calls if c.module and _within(c.module, inside)}
        for path in below:
            if path == inside or not path:
                continue
            part = program.part([c for c in program.calls if _within(c.module, path)])
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
    """Where the failure is in one place, as it mostly is: halves away what comes before it, then what comes after."""
    for front in (False, True):
        low, high = 1, len(program.calls)
        while low < high and not enough():
            size = (low + high) // 2
            part = program.part(program.calls[:size] if front else program.calls[-size:])
            if len(part.calls) < len(program.calls) and fails(part):
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
        if torch.equal(tensor, draw(tensor)):
            continue
        part = replace(program, weights={**program.weights, ref: _drawn(tensor)})
        if not enough() and fails(part):
            program = part
    return program


def drawn_inputs(program: Program, fails: Fails, enough: Callable[[], bool]) -> Program:
    """Inputs drawn anew, as a script would draw them."""
    for ref in program.inputs:
        if all(torch.equal(table[ref], draw(table[ref])) for table in (program.seen, *program.others)):
            continue
        others = tuple({**table, ref: draw(table[ref])} for table in program.others)
        part = replace(program, seen={**program.seen, ref: draw(program.seen[ref])}, others=others)
        if not enough() and fails(part):
            program = part
    return program
