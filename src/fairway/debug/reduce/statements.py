"""A program's calls as the lines of a `forward`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fairway.debug.reduce.program import BRANCH, OPERATORS, STEPS, TAKEN, UNARY, Program, ProgramCall, Ref


def forward(program: Program) -> list[str]:
    """The body of `forward`."""
    names = {ref: f"x{i}" for i, ref in enumerate(program.inputs)}
    names |= {ref: f"self.{ref.weight}" for ref in program.weights}
    used = {ref.var for call in program.calls for ref in call.reads()} | {ref.var for ref in program.outputs}
    lines = []
    for call in program.calls:
        if call.var in used and not call.name.endswith("__setitem__"):
            lines.append(f"v{call.var} = {statement(call, names)}")
        else:
            lines.append(_decision(call, names) if call.decides else statement(call, names))
    ends = "".join(f"{show(ref, names)}, " for ref in program.outputs).strip()
    return [*lines, f"return ({ends})" if program.outputs else "return ()"]


def _decision(call: ProgramCall, names: Mapping[Ref, str]) -> str:
    """What Python asked for, to decide something; what it made of the answer is in the other calls."""
    args = [show(arg, names) for arg in call.args]
    if call.name == STEPS:
        return f"for _ in range({args[0]}): pass"
    if call.name.startswith(BRANCH):
        return f"if {args[0]} {OPERATORS[call.name.removeprefix(BRANCH)][1]} {args[1]}: pass"
    return f"if {args[0]}: pass" if "bool" in call.name else statement(call, names)


def statement(call: ProgramCall, names: Mapping[Ref, str]) -> str:
    """One call as Python."""
    args = [show(arg, names) for arg in call.args]
    kwargs = [f"{key}={show(value, names)}" for key, value in call.kwargs.items()]
    if call.name == STEPS:
        return f"len(range({args[0]}))"
    if call.name.startswith(BRANCH):
        return f"bool({args[0]} {OPERATORS[call.name.removeprefix(BRANCH)][1]} {args[1]})"
    if call.name in TAKEN:
        return f"{'operator.' * (call.name == 'index')}{call.name}({args[0]})"
    if call.name in UNARY:
        return UNARY[call.name][1].format(args[0])
    if call.name in OPERATORS:
        return f"{args[0]} {OPERATORS[call.name][1]} {args[1]}"
    short = call.name.removeprefix("torch.Tensor.")
    if short.endswith(".__get__"):
        return f"{args[0]}.{short.removesuffix('.__get__')}"
    match short:
        case "__getitem__":
            return f"{args[0]}[{args[1]}]"
        case "__setitem__":
            return f"{args[0]}[{args[1]}] = {args[2]}"
        case "__bool__" | "__int__" | "__float__" | "__len__":
            return f"{short.strip('_')}({args[0]})"
    if short != call.name and not short.startswith("__") and isinstance(call.args[0], Ref):
        return f"{args[0]}.{short}({', '.join([*args[1:], *kwargs])})"
    return f"{call.name}({', '.join([*args, *kwargs])})"


def show(item: Any, names: Mapping[Ref, str]) -> str:
    """A value as Python writes it."""
    if isinstance(item, Ref):
        whole = names.get(item) or names.get(Ref(item.var)) or f"v{item.var}"
        return whole if item in names else whole + "".join(f"[{index}]" for index in item.path)
    if isinstance(item, slice):
        return f"slice({', '.join(show(part, names) for part in (item.start, item.stop, item.step))})"
    if isinstance(item, tuple):
        inner = ", ".join(show(part, names) for part in item)
        return f"({inner},)" if len(item) == 1 else f"({inner})"
    if isinstance(item, list):
        return f"[{', '.join(show(part, names) for part in item)}]"
    if isinstance(item, dict):
        return "{" + ", ".join(f"{key!r}: {show(value, names)}" for key, value in item.items()) + "}"
    if item is Ellipsis:
        return "..."
    if isinstance(item, float) and item != item:
        return "float('nan')"
    if isinstance(item, float) and item in (float("inf"), float("-inf")):
        return f"float('{item}')"
    if isinstance(item, torch.device):
        return repr(str(item))
    return unwritten(item) or repr(item)


WRITTEN = (
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    range,
    np.generic,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    Ref,
    type(Ellipsis),
)


def unwritten(item: Any) -> str:
    """A name for what Python has no writing for, such as a generator; empty where it has."""
    return "" if isinstance(item, WRITTEN) else f"unwritten_{type(item).__name__}_{id(item):x}"
