"""A program as the Python file that a user might have written."""

from __future__ import annotations

from program import Program

HEADER = '''"""Random model {seed}."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def weight(seed, shape, scale, dtype):
    drawn = (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)
    return torch.from_numpy(drawn).to(dtype)
'''


def source(program: Program, seed: int) -> str:
    return HEADER.format(seed=seed) + "".join(_class(one) for one in _innermost_first(program))


def _innermost_first(program: Program) -> list[Program]:
    return [*(one for block in program.inner for one in _innermost_first(block)), program]


def _class(program: Program) -> str:
    names = ", ".join(one.value.name for one in program.inputs)
    lines = ["", "", f"class {program.name}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {line}" for line in program.init]
    lines += ["", f"    def forward(self, {names}):"]
    lines += [f"        {line}" for step in program.steps for line in step.lines]
    lines += [f"        return {', '.join(value.name for value in program.outputs)}"]
    return "\n".join(lines) + "\n"
