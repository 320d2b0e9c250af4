"""A program as a model, compiled from the very lines that its script will have.

So what a trial says of a candidate holds for the script, and where an exporter names a line, that line is a call.
"""

from __future__ import annotations

import linecache
import math
import operator
from typing import Any

import numpy as np
import torch

from fairway.debug.reduce.program import Program, leaves
from fairway.debug.reduce.statements import forward, unwritten

FILE = "<the calls>"
"""Under this name the lines are known to tracebacks."""

FIRST = 3
"""The line of the first call; before it stand those of the class and of `forward`."""


def replay(program: Program) -> torch.nn.Module:
    """The model. An object that no script can write down is handed to it under a name."""
    names = [f"x{i}" for i in range(len(program.inputs))]
    head = ["class Repro(torch.nn.Module):", f"    def forward({', '.join(['self', *names])}):"]
    text = "\n".join([*head, *(f"        {line}" for line in forward(program)), ""])
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    known: dict[str, Any] = {"torch": torch, "math": math, "operator": operator, "np": np, "__name__": __name__}
    given = leaves([(call.args, dict(call.kwargs)) for call in program.calls])
    known |= {name: leaf for leaf in given if (name := unwritten(leaf))}
    exec(compile(text, FILE, "exec"), known)
    model: torch.nn.Module = known["Repro"]()
    for ref, tensor in program.weights.items():
        if tensor.requires_grad:
            model.register_parameter(ref.weight, torch.nn.Parameter(tensor))
        else:
            model.register_buffer(ref.weight, tensor)
    model.program = program  # type: ignore[assignment]  # for who wants to know what it was made of
    return model
