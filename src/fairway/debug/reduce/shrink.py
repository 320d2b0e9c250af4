"""Smaller and smaller programs that still fail in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch

from fairway.debug.reduce.draw import draw_like
from fairway.debug.reduce.program import Program, Ref, Value
from fairway.debug.reduce.simplify import FailureTest, use_plain_constants, use_plain_dtypes, use_small_sizes

FEW_OPERATORS = 3
"""A report with so few operators is short enough."""


def shrink(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Cut submodules, then ranges of calls, then single calls; then outputs, weights and inputs, down to constants."""
    steps = (
        keep_submodule,
        draw_early,
        fix_sizes,
        cut_ends,
        cut_stretches,
        cut_single_calls,
        keep_one_output,
        hold_gradients,
        cut_single_calls,
        drop_gradients,
        make_contiguous,
        draw_weights,
        draw_inputs,
        use_plain_dtypes,
        use_plain_constants,
        use_small_sizes,
    )
    for step in steps:
        if is_time_up():
            return draw_all(program, fails)
        program = step(program, fails, is_time_up)
    return program


def draw_early(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Draw all numbers early: usually none matters, and writing those of a large program takes long each time."""
    return draw_all(program, fails)


def fix_sizes(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Fix all sizes if the failure stays: then nothing must fit other sizes, and trials are fast."""
    part = program.with_fixed_sizes()
    return part if program.dims and not is_time_up() and fails(part) else program


def hold_gradients(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Turn cut-off variables into weights with gradients, if much is left only because a distant weight needs them."""
    has_gradients = any(tensor.requires_grad for tensor in program.weights.values())
    if program.operators <= FEW_OPERATORS or program.dims or program.held or not has_gradients or is_time_up():
        return program
    part = program.with_held_gradients()
    return cut_stretches(part, fails, is_time_up) if fails(part) else program


def make_contiguous(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Make inputs and weights contiguous if the failure does not depend on their memory layout."""
    for ref in (*program.inputs, *program.weights):
        tensor = program.weights[ref] if ref in program.weights else program.seen[ref]
        if tensor.is_contiguous() or is_time_up():
            continue
        tables = [
            {**table, ref: draw_like(table[ref].detach().contiguous()).requires_grad_(table[ref].requires_grad)}
            if ref in table
            else table
            for table in (program.seen, program.weights, *program.others)
        ]
        part = replace(program, seen=tables[0], weights=tables[1], others=tuple(tables[2:]))
        if fails(part):
            program = part
    return program


def draw_all(program: Program, fails: FailureTest) -> Program:
    """Draw all numbers at once, even if the time is up: a script with pages of numbers is useless."""

    def table(values: Mapping[Ref, Value], refs: Iterable[Ref]) -> dict[Ref, Value]:
        return {**values, **{ref: _draw(values[ref]) for ref in refs if values[ref].dtype.is_floating_point}}

    if all(map(_is_drawn, [*(program.seen[ref] for ref in program.inputs), *program.weights.values()])):
        return program
    part = replace(
        program,
        seen=table(program.seen, program.inputs),
        weights=table(program.weights, program.weights),
        others=tuple(table(other, program.inputs) for other in program.others),
    )
    return part if fails(part) else program


def _draw(tensor: torch.Tensor) -> torch.Tensor:
    return draw_like(tensor).requires_grad_(tensor.requires_grad)


def _is_drawn(tensor: torch.Tensor) -> bool:
    return not tensor.dtype.is_floating_point or torch.equal(tensor, draw_like(tensor))


def keep_submodule(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Keep the deepest module whose calls fail alone. Of equal ones take the first: a stack of layers is tried once."""
    path_kept = ""
    while not is_time_up():
        depth = len(path_kept.split(".")) if path_kept else 0
        below = {
            _get_prefix(c.module, depth + 1): None
            for c in program.calls
            if c.module and _is_within(c.module, path_kept)
        }
        for path in below:
            if path == path_kept or not path:
                continue
            part = program.cut_to([c for c in program.calls if _is_within(c.module, path)])
            if part.calls and len(part.calls) < len(program.calls) and fails(part):
                program, path_kept = part, path
                break
        else:
            return program
    return program


def _get_prefix(module: str, parts: int) -> str:
    return ".".join(module.split(".")[:parts])


def _is_within(module: str, path: str) -> bool:
    return not path or module == path or module.startswith(path + ".")


def cut_ends(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Cut halves before the failure, then after it, assuming that the failure is in one place."""
    for front in (False, True):
        low, high = 1, len(program.calls)
        while low < high and not is_time_up():
            size = (low + high) // 2
            part = program.cut_to(program.calls[:size] if front else program.calls[-size:])
            if len(part.calls) < len(program.calls) and fails(part):
                program, high = part, len(part.calls)
            else:
                low = size + 1
    return program


def cut_stretches(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Cut large ranges first: halves, quarters and so on, from either end and within."""
    size = max(1, len(program.calls) // 2)
    while size >= 2 and not is_time_up():
        start, is_smaller = 0, False
        while start < len(program.calls) and not is_time_up():
            remaining = [*program.calls[:start], *program.calls[start + size :]]
            part = program.keep_calls(remaining) if remaining else None
            if part is not None and fails(part):
                program, is_smaller = part, True
            else:
                start += size
        size = size // 2 if not is_smaller else min(size, max(1, len(program.calls) // 2))
    return program


def cut_single_calls(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Cut call by call, from the last, until none can go."""
    changed = True
    while changed and not is_time_up():
        changed = False
        for call in reversed(program.calls):
            if is_time_up() or len(program.calls) == 1:
                break
            part = program.keep_calls([c for c in program.calls if c is not call and c.var != call.var])
            if part.calls and fails(part):
                program, changed = part, True
    return program


def keep_one_output(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Keep one output if one is enough."""
    for ref in program.outputs:
        part = replace(program, outputs=(ref,))
        if len(program.outputs) > 1 and not is_time_up() and fails(part):
            return part
    return program


def drop_gradients(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Drop gradients if the failure does not depend on them."""
    if not any(tensor.requires_grad for tensor in program.weights.values()):
        return program
    part = program.without_gradients()
    return part if not is_time_up() and fails(part) else program


def draw_weights(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Replace weights by random numbers that a script can draw; those that matter stay."""
    for ref, tensor in program.weights.items():
        if torch.equal(tensor, draw_like(tensor)):
            continue
        part = replace(program, weights={**program.weights, ref: _draw(tensor)})
        if not is_time_up() and fails(part):
            program = part
    return program


def draw_inputs(program: Program, fails: FailureTest, is_time_up: Callable[[], bool]) -> Program:
    """Replace inputs by random numbers that a script can draw."""
    for ref in program.inputs:
        if all(torch.equal(table[ref], draw_like(table[ref])) for table in (program.seen, *program.others)):
            continue
        others = tuple({**table, ref: draw_like(table[ref])} for table in program.others)
        part = replace(program, seen={**program.seen, ref: draw_like(program.seen[ref])}, others=others)
        if not is_time_up() and fails(part):
            program = part
    return program
