"""Write a program's calls as the lines of a `forward`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from fairway.debug.reduce.program import (
    BRANCH_PREFIX,
    LOOP_RANGE,
    NUMBER_QUESTIONS,
    OPERATORS,
    UNARY,
    Program,
    ProgramCall,
    Ref,
    Value,
)


def write_forward(program: Program) -> list[str]:
    """Return the body of `forward`."""
    names = {ref: f"x{i}" for i, ref in enumerate(program.inputs)}
    names |= {ref: f"self.{ref.weight}" for ref in program.weights}
    used = {ref.var for call in program.calls for ref in call.list_refs()} | {ref.var for ref in program.outputs}
    lines = []
    for call in program.calls:
        if call.var in used and not call.name.endswith("__setitem__"):
            lines.append(f"v{call.var} = {write_statement(call, names)}")
        else:
            lines.append(_write_decision(call, names) if call.is_decision else write_statement(call, names))
    outputs = "".join(f"{write_value(ref, names)}, " for ref in program.outputs).strip()
    return [*lines, f"return ({outputs})" if program.outputs else "return ()"]


def _write_decision(call: ProgramCall, names: Mapping[Ref, str]) -> str:
    """Write a question that decides something. The consequences of the answer are in the other calls."""
    args = [write_value(arg, names) for arg in call.args]
    if call.name == LOOP_RANGE:
        return f"for _ in range({args[0]}): pass"
    if call.name.startswith(BRANCH_PREFIX):
        return f"if {args[0]} {OPERATORS[call.name.removeprefix(BRANCH_PREFIX)][1]} {args[1]}: pass"
    return f"if {args[0]}: pass" if "bool" in call.name else write_statement(call, names)


def write_statement(call: ProgramCall, names: Mapping[Ref, str]) -> str:
    """Write one call as Python."""
    args = [write_value(arg, names) for arg in call.args]
    kwargs = [f"{key}={write_value(value, names)}" for key, value in call.kwargs.items()]
    if call.name == LOOP_RANGE:
        return f"len(range({args[0]}))"
    if call.name.startswith(BRANCH_PREFIX):
        return f"bool({args[0]} {OPERATORS[call.name.removeprefix(BRANCH_PREFIX)][1]} {args[1]})"
    if call.name in NUMBER_QUESTIONS:
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


def write_value(item: Value, names: Mapping[Ref, str]) -> str:
    """Write a value as Python."""
    if isinstance(item, Ref):
        name = names.get(item) or names.get(Ref(item.var)) or f"v{item.var}"
        return name if item in names else name + "".join(f"[{index}]" for index in item.path)
    if isinstance(item, slice):
        return f"slice({', '.join(write_value(part, names) for part in (item.start, item.stop, item.step))})"
    if isinstance(item, tuple):
        inner = ", ".join(write_value(part, names) for part in item)
        return f"({inner},)" if len(item) == 1 else f"({inner})"
    if isinstance(item, list):
        return f"[{', '.join(write_value(part, names) for part in item)}]"
    if isinstance(item, dict):
        return "{" + ", ".join(f"{key!r}: {write_value(value, names)}" for key, value in item.items()) + "}"
    if item is Ellipsis:
        return "..."
    if isinstance(item, float) and item != item:
        return "float('nan')"
    if isinstance(item, float) and item in (float("inf"), float("-inf")):
        return f"float('{item}')"
    if isinstance(item, torch.device):
        return repr(str(item))
    return name_unwritable(item) or repr(item)


WRITABLE_TYPES = (
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


def name_unwritable(item: Value) -> str:
    """Return a name for a value without a literal, such as a generator; empty if it has one."""
    return "" if isinstance(item, WRITABLE_TYPES) else f"unwritten_{type(item).__name__}_{id(item):x}"
