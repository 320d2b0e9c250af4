"""A program as a model, compiled from the same lines that its script will have.

So the result of a trial holds for the script, and a line that an exporter names is a call.
"""

from __future__ import annotations

import linecache
import math
import operator
from typing import Any

import numpy as np
import torch

from fairway.debug.reduce.program import Program, iterate_leaves
from fairway.debug.reduce.statements import name_unwritable, write_forward

REPLAY_FILE = "<the calls>"
"""The file name of these lines in tracebacks."""

FIRST_CALL_LINE = 3
"""The line of the first call, after those of the class and of `forward`."""


def replay(program: Program) -> torch.nn.Module:
    """Build the model. An object without a literal is passed in under a name."""
    names = [f"x{i}" for i in range(len(program.inputs))]
    head = ["class Repro(torch.nn.Module):", f"    def forward({', '.join(['self', *names])}):"]
    text = "\n".join([*head, *(f"        {line}" for line in write_forward(program)), ""])
    linecache.cache[REPLAY_FILE] = (len(text), None, text.splitlines(keepends=True), REPLAY_FILE)
    namespace: dict[str, Any] = {"torch": torch, "math": math, "operator": operator, "np": np, "__name__": __name__}
    values = iterate_leaves([(call.args, dict(call.kwargs)) for call in program.calls])
    namespace |= {name: leaf for leaf in values if (name := name_unwritable(leaf))}
    exec(compile(text, REPLAY_FILE, "exec"), namespace)
    model: torch.nn.Module = namespace["Repro"]()
    for ref, tensor in program.weights.items():
        if tensor.requires_grad:
            model.register_parameter(ref.weight, torch.nn.Parameter(tensor))
        else:
            model.register_buffer(ref.weight, tensor)
    model.program = program  # type: ignore[assignment]  # read by `trial_export.run_trial`
    return model
