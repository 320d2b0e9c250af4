"""Finishing a candidate: the user's names, declared shapes, remedies on the graph, one way of saving."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from fairway.convert.blocks.repeats import ShortenedModel
from fairway.convert.blocks.stamp import stamp
from fairway.convert.remedies.contract import Case
from fairway.convert.remedies.input_output_name_clash import own_values
from fairway.convert.weights.half_precision import compute_wide
from fairway.convert.weights.recognize import WeightAddresses
from fairway.diagnostics.errors import Bug
from fairway.model.subject import Subject
from fairway.model.weight_storage import Mode, WeightStorage, choose, save_candidate, weight_bytes

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


def finish(
    model: ir.Model, subject: Subject, case: Case, path: Path, cut: ShortenedModel, weights: Mode | None
) -> tuple[int, list[bool], WeightStorage]:
    """Repairs, names and saves the model; answers its opset, which passes changed anything, where its weights lie.

    The passes see the blocks that were captured; what they made of those is stamped for the others.
    """
    graph = model.graph
    _restore_inputs(graph, subject)
    _declare_inputs(graph, subject)
    changed = [one(model) for one in case.passes]
    if cut:
        stamp(model, cut, WeightAddresses(case.model))
    outside = choose(weights, weight_bytes(model)) != "embed"
    wide = outside and compute_wide(model)
    _strip_wrapper(model)
    _name_values(graph, subject.input_names, case.output_names)
    stored = replace(save_candidate(model, path, weights), wide=wide)
    return int(model.opset_imports[""]), changed, stored


def _strip_wrapper(model: ir.Model) -> None:
    """Takes `model.`, the wrapper's own level, out of the weights' names."""
    initializers = model.graph.initializers
    for name in [n for n in initializers if n.startswith("model.")]:
        short = name.removeprefix("model.")
        if short not in initializers:
            value = initializers[name]
            del initializers[name]
            value.name = short
            initializers[short] = value


def _restore_inputs(graph: ir.Graph, subject: Subject) -> None:
    """Inputs without effect are dropped by some exporters; the file's signature must stay the declared one."""
    if len(graph.inputs) == len(subject.spec):
        return
    numbered = {_number(value.name or ""): value for value in graph.inputs}
    if None in numbered or len(numbered) != len(graph.inputs):
        raise Bug(f"the exporter left {len(graph.inputs)} of {len(subject.spec)} inputs, under names of its own")
    whole = [numbered.get(i) or ir.Value(name=f"fairway_in_{i}") for i in range(len(subject.spec))]
    graph.inputs.clear()
    graph.inputs.extend(whole)


def _number(name: str) -> int | None:
    found = re.fullmatch(r"(?:fairway_in|tensors)_(\d+)", name)
    return int(found[1]) if found else None


def _name_values(graph: ir.Graph, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """Gives graph inputs and outputs their names; an inner value that holds such a name gets another."""
    if len(outputs) != len(graph.outputs):
        raise Bug(f"{len(graph.outputs)} outputs in the graph, {len(outputs)} names")
    own_values(graph)
    wanted = {*inputs, *outputs}
    ends = {id(v) for v in (*graph.inputs, *graph.outputs)}
    for node in graph.all_nodes():
        for value in node.outputs:
            if value.name in wanted and id(value) not in ends:
                value.name = f"{value.name}_inner"
    for name in [n for n in graph.initializers if n in wanted]:
        value = graph.initializers[name]
        del graph.initializers[name]
        value.name = f"{name}_weight"
        graph.initializers[value.name] = value
    for value, name in zip(graph.inputs, inputs, strict=True):
        value.name = name
    for value, name in zip(graph.outputs, outputs, strict=True):
        value.name = name


def _declare_inputs(graph: ir.Graph, subject: Subject) -> None:
    """Declares each input as the spec does, and calls its dims everywhere by the user's names.

    A dim that the graph fixed inside stays fixed there, and the lattice finds it.
    """
    names: dict[str, str] = {}
    for value, given in zip(graph.inputs, subject.spec, strict=True):
        # TorchScript's exporter declares complex inputs as complex, torch.export's as pairs of floats.
        spec = given if value.dtype == ir.DataType.COMPLEX64 else given.in_file
        declared = [size.fixed if size.fixed is not None else re.sub(r"\s", "", size.text) for size in spec.shape]
        for old, size in zip(value.shape or (), spec.shape, strict=False):
            if isinstance(old, ir.SymbolicDim) and old.value and len(size.names) == 1 and size.text == size.names[0]:
                names.setdefault(str(old.value), size.text)
        value.dtype = _DTYPES[spec.dtype]
        value.shape = ir.Shape(declared)
    for value in (*graph.outputs, *(v for node in graph.all_nodes() for v in node.outputs)):
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(dim, names) for dim in value.shape])


def _renamed(dim: int | ir.SymbolicDim, names: dict[str, str]) -> int | str | None:
    if not isinstance(dim, ir.SymbolicDim):
        return dim
    return re.sub(r"[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), str(dim.value)) if dim.value else None
