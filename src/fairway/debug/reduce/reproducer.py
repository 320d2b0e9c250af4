"""A program as a script of its own, which needs torch, onnx and onnxruntime and nothing else."""

from __future__ import annotations

from textwrap import shorten

import torch

from fairway.debug.reduce.draw import back, draw, layout, span
from fairway.debug.reduce.program import Program, ProgramCall, Ref
from fairway.debug.reduce.statements import forward
from fairway.debug.reduce.trial_export import WRONG, Seen, dynamic, values_at

_EXPORT = {
    "dynamo": "torch.onnx.export(model, inputs, path, dynamo=True, dynamic_shapes={shapes}, external_data=False)",
    "trace": "torch.onnx.export(model, inputs, path, dynamo=False, input_names={names}, dynamic_axes={axes})",
}

_COMPARE = """
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
"""


def write_script(program: Program, exporter: str, title: str) -> str:
    """The script. It ends with the failure itself, or says that it is gone."""
    values = values_at(program)
    axes = dynamic(program, values)
    names = [f"x{i}" for i in range(len(values))]
    dims = "torch.export.Dim.DYNAMIC"
    shapes = "".join(f"{{{', '.join(f'{axis}: {dims}' for axis in one)}}}, " for one in axes)
    call = _EXPORT[exporter].format(shapes=f"({shapes.strip()})", names=names, axes=dict(zip(names, axes, strict=True)))
    body = forward(program)
    lines = [f'"""{title}"""', ""]
    needed = [f"import {name}" for name in ("math", "operator") if any(f"{name}." in line for line in body)]
    lines += [*needed, ""] if needed else []
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
        return f"self.{ref.weight} = torch.nn.Parameter({drawn(tensor.detach())})"
    return f'self.register_buffer("{ref.weight}", {drawn(tensor)})'


OWN = ("aten", "prims", "quantized", "prim", "higher_order", "torchvision", "onnx")
"""Operators that come with torch, by namespace."""


def _definition(program: Program, call: ProgramCall) -> list[str]:
    """An operator that a library brought, declared anew: what it computes is not known here, and does not matter."""
    if not call.name.startswith("torch.ops.") or call.name.split(".")[2] in OWN:
        return []
    space, short = call.name.split(".")[2:4]
    schema = getattr(getattr(torch.ops, space), short).default._schema
    outputs = [v for ref, v in program.seen.items() if ref.var == call.var and isinstance(v, torch.Tensor)]
    made = [f"torch.zeros({list(v.shape)}, dtype={v.dtype})" for v in outputs]
    return [
        f'torch.library.define("{space}::{short}", "{str(schema).removeprefix(f"{space}::{short}")}")',
        "",
        "",
        f"def {short}(*args, **kwargs):",
        f"    return {made[0] if len(made) == 1 else '(' + ', '.join(made) + ')'}",
        "",
        "",
        f'torch.library.impl("{space}::{short}", "CPU", {short})',
        f'torch.library.register_fake("{space}::{short}", {short})',
        "",
    ]


def drawn(tensor: torch.Tensor) -> str:
    """The expression for a tensor: how to draw it, or its elements where those matter, and how it lies in memory."""
    order = layout(tensor)
    permuted = "" if order == tuple(range(tensor.dim())) else f".permute({', '.join(map(str, back(order)))})"
    dtype = "" if tensor.dtype == torch.float32 else f".to({tensor.dtype})"
    sizes = "".join(f"{tensor.shape[axis]}, " for axis in order)
    if not torch.equal(tensor, draw(tensor)) and not bool(tensor.isnan().any()):
        return f"torch.tensor({tensor.permute(order).tolist()}, dtype={tensor.dtype}){permuted}"
    if tensor.dtype == torch.bool:
        return f"(torch.rand(({sizes}), generator=seed()) > 0.5){permuted}"
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return f"torch.randn(({sizes}), generator=seed()){dtype}{permuted}"
    low, high = span(tensor)
    return f"torch.randint({low}, {high}, ({sizes}), generator=seed(), dtype={tensor.dtype}){permuted}"


def title_of(seen: Seen, program: Program, exporter: str) -> str:
    """What a maintainer reads first."""
    assert seen.signature is not None
    calls = [c.name for c in program.calls if c.computes]
    what = ", ".join(dict.fromkeys(name.removeprefix("torch.").removeprefix("Tensor.") for name in calls[:3]))
    how = "torch.onnx.export(dynamo=True)" if exporter == "dynamo" else "torch.onnx.export(dynamo=False)"
    first = shorten(seen.said, 120, placeholder=" …").replace('"', "'").replace("\\", "/")
    return f"{how}: {what or 'a size'}: {first}"
