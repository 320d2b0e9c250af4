"""Finishes a candidate: graph passes, the user's names, declared shapes, and saving."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from fairway.convert.blocks.stamp import stamp_blocks
from fairway.convert.remedies.contract import Case
from fairway.convert.remedies.input_output_name_clash import separate_outputs
from fairway.convert.weights.half_precision import compute_in_float32
from fairway.convert.weights.recognize import WeightAddresses
from fairway.diagnostics.errors import Bug
from fairway.model.subject import Subject
from fairway.model.weight_storage import WeightMode, WeightStorage, choose_mode, count_weight_bytes, save_candidate

_DTYPES = {
    "float32": ir.DataType.FLOAT,
    "float64": ir.DataType.DOUBLE,
    "float16": ir.DataType.FLOAT16,
    "bfloat16": ir.DataType.BFLOAT16,
    "int64": ir.DataType.INT64,
    "int32": ir.DataType.INT32,
    "int16": ir.DataType.INT16,
    "int8": ir.DataType.INT8,
    "uint8": ir.DataType.UINT8,
    "bool": ir.DataType.BOOL,
    "complex64": ir.DataType.COMPLEX64,
}


def finish_file(
    model: ir.Model, subject: Subject, case: Case, path: Path, weights: WeightMode | None
) -> tuple[int, list[bool], WeightStorage]:
    """Repair, name and save the model. Return its opset, whether each pass changed it, and where its weights are.

    The passes see only the blocks that were captured. The result is stamped for the other blocks.
    """
    graph = model.graph
    _restore_inputs(graph, subject)
    _declare_inputs(graph, subject)
    changes = [run_pass(model) for run_pass in case.passes]
    if case.cut:
        stamp_blocks(model, case.cut, WeightAddresses(case.model))
    outside = choose_mode(weights, count_weight_bytes(model)) != "embed"
    wide = outside and compute_in_float32(model)
    _strip_wrapper(model)
    _name_values(graph, subject.input_names, case.output_names)
    stored = replace(save_candidate(model, path, weights), wide=wide)
    return int(model.opset_imports[""]), changes, stored


def _strip_wrapper(model: ir.Model) -> None:
    """Remove `model.`, the level of the wrapper, from the weights' names."""
    initializers = model.graph.initializers
    for name in [n for n in initializers if n.startswith("model.")]:
        short = name.removeprefix("model.")
        if short not in initializers:
            value = initializers[name]
            del initializers[name]
            value.name = short
            initializers[short] = value


def _restore_inputs(graph: ir.Graph, subject: Subject) -> None:
    """Add the inputs that the exporter dropped because they have no effect: the file keeps the declared signature."""
    if len(graph.inputs) == len(subject.spec):
        return
    numbered = {_parse_number(value.name or ""): value for value in graph.inputs}
    if None in numbered or len(numbered) != len(graph.inputs):
        raise Bug(f"expected {len(subject.spec)} inputs, the exporter kept {len(graph.inputs)} and renamed them")
    inputs = [numbered.get(i) or ir.Value(name=f"fairway_in_{i}") for i in range(len(subject.spec))]
    graph.inputs.clear()
    graph.inputs.extend(inputs)


def _parse_number(name: str) -> int | None:
    match = re.fullmatch(r"(?:fairway_in|tensors)_(\d+)", name)
    return int(match[1]) if match else None


def _name_values(graph: ir.Graph, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Name the graph's inputs and outputs. An inner value that has such a name is renamed."""
    if len(outputs) != len(graph.outputs):
        raise Bug(f"expected {len(outputs)} outputs, the graph has {len(graph.outputs)}")
    separate_outputs(graph)
    names = {*inputs, *outputs}
    ends = {id(v) for v in (*graph.inputs, *graph.outputs)}
    for node in graph.all_nodes():
        for value in node.outputs:
            if value.name in names and id(value) not in ends:
                value.name = f"{value.name}_inner"
    for name in [n for n in graph.initializers if n in names]:
        value = graph.initializers[name]
        del graph.initializers[name]
        value.name = f"{name}_weight"
        graph.initializers[value.name] = value
    for value, name in zip(graph.inputs, inputs, strict=True):
        value.name = name
    for value, name in zip(graph.outputs, outputs, strict=True):
        value.name = name


def _declare_inputs(graph: ir.Graph, subject: Subject) -> None:
    """Declare each input as the spec does, and use the user's names of dims in every shape.

    A dim that the graph fixed inside stays fixed there, and the lattice detects it.
    """
    names: dict[str, str] = {}
    for value, given in zip(graph.inputs, subject.spec, strict=True):
        # TorchScript's exporter declares complex inputs as complex, torch.export's as pairs of floats.
        spec = given if value.dtype == ir.DataType.COMPLEX64 else given.in_file
        declared = [
            size.constant_value if size.constant_value is not None else re.sub(r"\s", "", size.text)
            for size in spec.shape
        ]
        for old, size in zip(value.shape or (), spec.shape, strict=False):
            if isinstance(old, ir.SymbolicDim) and old.value and len(size.names) == 1 and size.text == size.names[0]:
                names.setdefault(str(old.value), size.text)
        value.dtype = _DTYPES[spec.dtype]
        value.shape = ir.Shape(declared)
    for value in (*graph.outputs, *(v for node in graph.all_nodes() for v in node.outputs)):
        if value.shape is not None:
            value.shape = ir.Shape([_rename_dim(dim, names) for dim in value.shape])


def _rename_dim(dim: int | ir.SymbolicDim, names: dict[str, str]) -> int | str | None:
    if not isinstance(dim, ir.SymbolicDim):
        return dim
    return re.sub(r"[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), str(dim.value)) if dim.value else None
