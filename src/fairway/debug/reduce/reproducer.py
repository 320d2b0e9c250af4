"""A program as a standalone script that needs only torch, onnx and onnxruntime."""

from __future__ import annotations

from textwrap import shorten

import torch

from fairway.debug.reduce.draw import draw_like, find_integer_bounds, invert_permutation, sort_axes_by_memory
from fairway.debug.reduce.program import Program, ProgramCall, Ref
from fairway.debug.reduce.statements import write_forward
from fairway.debug.reduce.trial_export import WRONG_SHARE, TrialOutcome, get_inputs, list_dynamic_axes
from fairway.torch_internals import read_schema

_EXPORT_TEMPLATES = {
    "dynamo": "torch.onnx.export(model, inputs, path, dynamo=True, dynamic_shapes={shapes}, external_data=False)",
    "trace": "torch.onnx.export(model, inputs, path, dynamo=False, input_names={names}, dynamic_axes={axes})",
}

_COMPARE_TEMPLATE = """
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
    """Write the script. It ends with the failure, or says that the failure is gone."""
    values = get_inputs(program)
    axes = list_dynamic_axes(program, values)
    names = [f"x{i}" for i in range(len(values))]
    dims = "torch.export.Dim.DYNAMIC"
    shapes = "".join(f"{{{', '.join(f'{axis}: {dims}' for axis in axes_of_input)}}}, " for axes_of_input in axes)
    call = _EXPORT_TEMPLATES[exporter].format(
        shapes=f"({shapes.strip()})", names=names, axes=dict(zip(names, axes, strict=True))
    )
    body = write_forward(program)
    lines = [f'"""{title}"""', ""]
    needed = [f"import {name}" for name in ("math", "operator") if any(f"{name}." in line for line in body)]
    lines += [*needed, ""] if needed else []
    lines += ["import numpy as np", "import onnxruntime", "import torch", ""]
    lines += [line for call in program.calls for line in _write_definition(program, call)]
    lines += ["", "def seed():", "    return torch.Generator().manual_seed(0)", "", ""]
    lines += ["class Repro(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {_write_weight(ref, tensor)}" for ref, tensor in program.weights.items()]
    lines += ["", f"    def forward({', '.join(['self', *names])}):"]
    lines += [f"        {line}" for line in body]
    lines += ["", "", "model = Repro().eval()"]
    lines += [f"inputs = ({''.join(write_tensor(v) + ', ' for v in values).strip()})"]
    input_names = "inputs, "
    for i in range(len(program.others)):
        lines += [f"other = ({''.join(write_tensor(v) + ', ' for v in get_inputs(program, i)).strip()})"]
        input_names = "inputs, other"
    lines += [
        'path = "repro.onnx"',
        call,
        _COMPARE_TEMPLATE.format(given=input_names.strip(), wrong=WRONG_SHARE).strip(),
        "",
    ]
    return "\n".join(lines)


def _write_weight(ref: Ref, tensor: torch.Tensor) -> str:
    if tensor.requires_grad:
        return f"self.{ref.weight} = torch.nn.Parameter({write_tensor(tensor.detach())})"
    return f'self.register_buffer("{ref.weight}", {write_tensor(tensor)})'


TORCH_NAMESPACES = ("aten", "prims", "quantized", "prim", "higher_order", "torchvision", "onnx")
"""Namespaces of operators that come with torch."""


def _write_definition(program: Program, call: ProgramCall) -> list[str]:
    """Declare an operator of another library. Its computation is unknown here and does not matter."""
    if not call.name.startswith("torch.ops.") or call.name.split(".")[2] in TORCH_NAMESPACES:
        return []
    namespace, name = call.name.split(".")[2:4]
    schema = read_schema(getattr(getattr(torch.ops, namespace), name).default)
    outputs = [v for ref, v in program.seen.items() if ref.var == call.var and isinstance(v, torch.Tensor)]
    results = [f"torch.zeros({list(v.shape)}, dtype={v.dtype})" for v in outputs]
    return [
        f'torch.library.define("{namespace}::{name}", "{str(schema).removeprefix(f"{namespace}::{name}")}")',
        "",
        "",
        f"def {name}(*args, **kwargs):",
        f"    return {results[0] if len(results) == 1 else '(' + ', '.join(results) + ')'}",
        "",
        "",
        f'torch.library.impl("{namespace}::{name}", "CPU", {name})',
        f'torch.library.register_fake("{namespace}::{name}", {name})',
        "",
    ]


def write_tensor(tensor: torch.Tensor) -> str:
    """Write the expression for a tensor: how to draw it, or its elements if those matter, and its memory layout."""
    order = sort_axes_by_memory(tensor)
    permuted = (
        "" if order == tuple(range(tensor.dim())) else f".permute({', '.join(map(str, invert_permutation(order)))})"
    )
    dtype = "" if tensor.dtype == torch.float32 else f".to({tensor.dtype})"
    sizes = "".join(f"{tensor.shape[axis]}, " for axis in order)
    if not torch.equal(tensor, draw_like(tensor)) and not bool(tensor.isnan().any()):
        return f"torch.tensor({tensor.permute(order).tolist()}, dtype={tensor.dtype}){permuted}"
    if tensor.dtype == torch.bool:
        return f"(torch.rand(({sizes}), generator=seed()) > 0.5){permuted}"
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return f"torch.randn(({sizes}), generator=seed()){dtype}{permuted}"
    low, high = find_integer_bounds(tensor)
    return f"torch.randint({low}, {high}, ({sizes}), generator=seed(), dtype={tensor.dtype}){permuted}"


def make_title(seen: TrialOutcome, program: Program, exporter: str) -> str:
    """Return the title of the report, with the failing calls and the start of the message."""
    assert seen.signature is not None
    calls = [c.name for c in program.calls if c.is_operator]
    calls_text = ", ".join(dict.fromkeys(name.removeprefix("torch.").removeprefix("Tensor.") for name in calls[:3]))
    exporter_text = "torch.onnx.export(dynamo=True)" if exporter == "dynamo" else "torch.onnx.export(dynamo=False)"
    message = shorten(seen.message, 120, placeholder=" …").replace('"', "'").replace("\\", "/")
    return f"{exporter_text}: {calls_text or 'a size'}: {message}"
