"""A program as a script of its own, which needs torch, onnx and onnxruntime and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fairway.reduce.draw import draw, span
from fairway.reduce.program import BRANCH, OPERATORS, STEPS, UNARY, Call, Program, Ref
from fairway.reduce.trial import WRONG, Seen, dynamic, values_at

_EXPORT = {
    "dynamo": "torch.onnx.export(model, inputs, path, dynamo=True, dynamic_shapes={shapes}, external_data=False)",
    "trace": "torch.onnx.export(model, inputs, path, dynamo=False, input_names={names}, dynamic_axes={axes})",
}

_COMPARE = '''
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
names = [value.name for value in session.get_inputs()]
for given in ({given}):
    with torch.no_grad():
        expected = model(*(tensor.clone() for tensor in given))
    feeds = {{name: tensor.numpy() for name, tensor in zip(names, given)}}
    results = session.run(None, feeds)
    assert len(results) == len(expected), f"PyTorch gives {{len(expected)}} outputs, the file {{len(results)}}"
    for want, got in zip(expected, results):
        assert got.shape == tuple(want.shape), f"PyTorch gives {{list(want.shape)}}, the file {{list(got.shape)}}"
        np.testing.assert_allclose(got, want.numpy(), atol={wrong} * max(1.0, float(want.float().abs().max())))
print("right: the failure is gone")
'''


def write_script(program: Program, exporter: str, title: str) -> str:
    """The script. It ends with the failure itself, or says that it is gone."""
    values = values_at(program)
    axes = dynamic(program, values)
    names = [f"x{i}" for i in range(len(values))]
    dims = "torch.export.Dim.DYNAMIC"
    shapes = "".join(f"{{{', '.join(f'{axis}: {dims}' for axis in one)}}}, " for one in axes)
    call = _EXPORT[exporter].format(
        shapes=f"({shapes.strip()})", names=names, axes=dict(zip(names, axes, strict=True))
    )
    body = forward(program)
    lines = [f'"""{title}"""', ""]
    lines += ["import math", ""] if any("math." in line for line in body) else []
    lines += ["import numpy as np", "import onnxruntime", "import torch", ""]
    lines += [line for call in program.calls for line in _definition(program, call)]
    lines += ["", "def seed():", "    return torch.Generator().manual_seed(0)", "", ""]
    lines += ["class Repro(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {_weight(ref, tensor)}" for ref, tensor in program.weights.items()]
    lines += ["", f"    def forward({', '.join(['self', *names])}):"]
    lines += [f"        {line}" for line in body]
    lines += ["", "", "model = Repro().eval()"]
    lines += [f"inputs = ({''.join(drawn(v) + ', ' for v in values).strip()})"]
    given = "inputs, "
    for i in range(len(program.others)):
        lines += [f"other = ({''.join(drawn(v) + ', ' for v in values_at(program, i)).strip()})"]
        given = "inputs, other"
    lines += ['path = "repro.onnx"', call, _COMPARE.format(given=given.strip(), wrong=WRONG).strip(), ""]
    return "\n".join(lines)


def _weight(ref: Ref, tensor: torch.Tensor) -> str:
    if tensor.requires_grad:
        return f"self.w{ref.var} = torch.nn.Parameter({drawn(tensor.detach())})"
    return f'self.register_buffer("w{ref.var}", {drawn(tensor)})'


OWN = ("aten", "prims", "quantized", "prim", "higher_order", "torchvision", "onnx")
"""Operators that come with torch, by namespace."""


def _definition(program: Program, call: Call) -> list[str]:
    """An operator that a library brought, declared anew: what it computes is not known here, and does not matter."""
    if not call.name.startswith("torch.ops.") or call.name.split(".")[2] in OWN:
        return []
    space, short = call.name.split(".")[2:4]
    schema = getattr(getattr(torch.ops, space), short).default._schema
    outputs = [v for ref, v in program.seen.items() if ref.var == call.var and isinstance(v, torch.Tensor)]
    made = [f"torch.zeros({list(v.shape)}, dtype={v.dtype})" for v in outputs]
    return [
        f'torch.library.define("{space}::{short}", "{str(schema).removeprefix(f"{space}::{short}")}")', "", "",
        f"def {short}(*args, **kwargs):", f"    return {made[0] if len(made) == 1 else '(' + ', '.join(made) + ')'}",
        "", "", f'torch.library.impl("{space}::{short}", "CPU", {short})',
        f'torch.library.register_fake("{space}::{short}", {short})', "",
    ]  # fmt: skip


def forward(program: Program) -> list[str]:
    """The body of `forward`."""
    names = {ref: f"x{i}" for i, ref in enumerate(program.inputs)}
    names |= {ref: f"self.w{ref.var}" for ref in program.weights}
    used = {ref.var for call in program.calls for ref in call.reads()} | {ref.var for ref in program.outputs}
    lines = []
    for call in program.calls:
        said = statement(call, names)
        if call.name == "torch.Tensor.__bool__" and call.var not in used:
            said = f"if {show(call.args[0], names)}: pass"  # what Python asked for it: to decide something
        plain = said.startswith(("if ", "for ")) or call.name.endswith("__setitem__")
        lines.append(f"v{call.var} = {said}" if call.var in used and not plain else said)
    ends = "".join(f"{show(ref, names)}, " for ref in program.outputs).strip()
    return [*lines, f"return ({ends})" if program.outputs else "return ()"]


def statement(call: Call, names: Mapping[Ref, str]) -> str:
    """One call as Python."""
    args = [show(arg, names) for arg in call.args]
    kwargs = [f"{key}={show(value, names)}" for key, value in call.kwargs.items()]
    if call.name == STEPS:
        return f"for _ in range({args[0]}): pass"
    if call.name.startswith(BRANCH):
        return f"if {args[0]} {OPERATORS[call.name.removeprefix(BRANCH)][1]} {args[1]}: pass"
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
    return repr(item)


def drawn(tensor: torch.Tensor) -> str:
    """The expression for a tensor: how to draw it, or its elements where those matter."""
    dtype = "" if tensor.dtype == torch.float32 else f".to({tensor.dtype})"
    sizes = "".join(f"{n}, " for n in tensor.shape)
    if not torch.equal(tensor, draw(tensor)) and not bool(tensor.isnan().any()):
        return f"torch.tensor({tensor.tolist()}, dtype={tensor.dtype})"
    if tensor.dtype == torch.bool:
        return f"torch.rand(({sizes}), generator=seed()) > 0.5"
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return f"torch.randn(({sizes}), generator=seed()){dtype}"
    low, high = span(tensor)
    return f"torch.randint({low}, {high}, ({sizes}), generator=seed(), dtype={tensor.dtype})"


def title_of(seen: Seen, program: Program, exporter: str) -> str:
    """What a maintainer reads first."""
    assert seen.signature is not None
    calls = [c.name for c in program.calls if c.name.startswith("torch") and "__get__" not in c.name]
    what = ", ".join(dict.fromkeys(name.removeprefix("torch.").removeprefix("Tensor.") for name in calls[:3]))
    how = "torch.onnx.export(dynamo=True)" if exporter == "dynamo" else "torch.onnx.export(dynamo=False)"
    first = " ".join(seen.said.split())[:120].replace('"', "'").replace("\\", "/")
    return f"{how}: {what or 'a size'}: {first}"
