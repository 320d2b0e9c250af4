"""A random program from a seed; what is ill-conditioned is drawn again."""

from __future__ import annotations

import random

import elementwise
import flow
import layers
import reducing
import shaping
from kinds import NN, B, Kind, Size, fixed
from oracle import well_conditioned
from program import Input, Program, SkipError, Value

OPERATORS = {
    **elementwise.OPERATORS,
    **reducing.OPERATORS,
    **shaping.OPERATORS,
    **layers.OPERATORS,
    **flow.OPERATORS,
}
LARGEST = 400
"""Elements at the highest corner, so that the oracle stays quick."""

SHAPES: tuple[tuple[Size, ...], ...] = (
    (B, NN),
    (B, NN, fixed(4)),
    (B, NN, fixed(3)),
    (B, fixed(2), NN),
    (B, fixed(4)),
    (NN, fixed(3)),
    (B, NN, fixed(6)),
)
DTYPES = ("float32",) * 6 + ("int64",) * 3 + ("int32", "bool", "float16", "float64")


def steps(program: Program, count: int) -> None:
    """Adds that many steps, of operators that fit what is there."""
    target, tries = len(program.steps) + count, 0
    while len(program.steps) < target and tries < 200:
        tries += 1
        before = (len(program.steps), len(program.values), len(program.init), len(program.inner))
        operator = program.rng.choices(list(OPERATORS), list(OPERATORS.values()))[0]
        try:
            operator(program)
        except SkipError:
            fits = False
        else:
            fits = _elements(program.values[-1].kind) <= LARGEST and program.values[-1].kind.rank <= 4
        if not fits:
            for kept, items in zip(before, (program.steps, program.values, program.init, program.inner), strict=True):
                del items[kept:]


def _elements(kind: Kind) -> int:
    product = 1
    for size in kind.shape:
        product *= max(size.at(3, 6), 1)
    return product


def draw(seed: int) -> tuple[Program, int]:
    """The program of a seed, and how many were drawn before one was fit to be judged."""
    for again in range(200):
        program = _draw(random.Random(f"{seed}/{again}"))
        if program is not None and well_conditioned(program):
            return program, again
    raise AssertionError(f"seed {seed}: no fit program in 200")


def _draw(rng: random.Random) -> Program | None:
    program = Program("Net", rng)
    for place in range(rng.randint(1, 3)):
        shape = rng.choice([s for s in SHAPES if NN in s and B in s] if place == 0 else SHAPES)
        dtype = "float32" if place == 0 and rng.random() < 0.55 else rng.choice(DTYPES)
        value = Value(f"x{place}", Kind(dtype, shape))
        low, high = rng.choice(((0, 6), (-7, 7))) if "int" in dtype else (None, None)
        program.inputs.append(Input(value, low, high))
        program.values.append(value)
    steps(program, rng.randint(6, 20))
    used = {name for step in program.steps for name in step.inputs}
    loose = [step.result for step in program.steps if step.result.name not in used]
    program.outputs = sorted(loose, key=lambda value: -_behind(program, value.name))[: rng.randint(1, 3)]
    return _without_the_unused(program) if program.outputs else None


def _behind(program: Program, name: str) -> int:
    """Return the number of steps that a value depends on."""
    needed = {name}
    for step in reversed(program.steps):
        if step.result.name in needed:
            needed |= set(step.inputs)
    return len(needed)


def _without_the_unused(program: Program) -> Program | None:
    """Only steps that some output needs; None where an input is left over, since exporters drop it."""
    needed = {value.name for value in program.outputs}
    kept = []
    for step in reversed(program.steps):
        # A size may have been read off any value, so what a line names is needed too.
        if step.result.name in needed:
            kept.append(step)
            needed |= set(step.inputs) | _named(step.lines, program)
    program.steps = kept[::-1]
    if not all(one.value.name in needed for one in program.inputs):
        return None
    return program


def _named(lines: tuple[str, ...], program: Program) -> set[str]:
    import re

    words = set(re.findall(r"\b[vx]\d+\b", " ".join(lines)))
    return words & {value.name for value in program.values}
