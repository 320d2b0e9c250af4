"""The prepared graph: constants folded, shapes known, every node named, the units to quantize listed.

A unit is a Conv, Gemm or MatMul with constant weights, and a Conv includes the Relu or Clip that only it feeds: what
runtimes fuse is quantized or left alone together. A GRU or LSTM is a unit too, but only its weights are quantized.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.tune.quantize.graph_cuts import find_cuts

WEIGHTED_OPERATORS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FLOAT_OUTPUT_OPERATORS = ("MatMul", "Gemm")
"""Their kernels take bytes and return floats, so rounding the result to bytes would gain nothing."""
FUSED_OPERATORS = ("Relu", "Clip")
RECURRENT_OPERATORS = ("GRU", "LSTM", "RNN")
MIN_OPSET = 13
"""The first opset in which QuantizeLinear has an axis, which per-channel scales need."""
RAISED_OPSET = 17
SCOPES_KEY = "pkg.torch.onnx.name_scopes"
"""The metadata in which torch's exporter stores the modules that a node comes from."""
QUANTIZED_OPERATORS = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "ConvInteger",
        "MatMulNBits",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "DynamicQuantizeLSTM",
        "QGemm",
        "QAttention",
        "GatherBlockQuantized",
    }
)


@dataclass(frozen=True)
class Unit:
    """A part of the graph that can be quantized or kept in float by itself."""

    name: str
    nodes: tuple[str, ...]
    operator: str
    weights: int
    """The number of elements in its weights."""
    module: str = ""

    def __str__(self) -> str:
        return f"{self.module} ({self.operator})" if self.module else self.name


@dataclass(frozen=True)
class PreparedGraph:
    """The graph that every variant is made from."""

    path: Path
    units: tuple[Unit, ...]
    opset: int
    raised_from: int | None
    """The opset of the file if it was too low and was converted."""

    def load(self) -> onnx.ModelProto:
        return onnx.load(self.path)


def prepare_graph(source: Path, folder: Path) -> PreparedGraph:
    """Write the prepared file to `folder`; fail on a file that is quantized already or cannot be converted."""
    model = onnx.load(source)
    _refuse_quantized(model, source)
    opset = _read_opset(model)
    modules = {out: _read_module(node) for node in model.graph.node for out in node.output if _read_module(node)}
    if opset < MIN_OPSET:
        model = _raise_opset(model, source, opset)
    path = folder / "prepared.onnx"
    model = _preprocess(model, folder)
    _name_nodes(model)
    onnx.save(model, path)
    raised = opset if opset < MIN_OPSET else None
    return PreparedGraph(path, _list_units(model, modules), _read_opset(model), raised)


def _refuse_quantized(model: onnx.ModelProto, source: Path) -> None:
    kinds = Counter(
        n.op_type for n in model.graph.node if n.op_type in QUANTIZED_OPERATORS or n.op_type.startswith("QLinear")
    )
    if kinds:
        seen = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(3))
        raise complain(Code.ALREADY_QUANTIZED, f"{source.name} holds {seen}")


def _read_opset(model: onnx.ModelProto) -> int:
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)


def _raise_opset(model: onnx.ModelProto, source: Path, opset: int) -> onnx.ModelProto:
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, RAISED_OPSET)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        seen = f"{source.name} has opset {opset}; quantization needs {MIN_OPSET}, and converting it failed: {first}"
        raise complain(Code.OPSET_TOO_LOW, seen) from error


def _preprocess(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Apply onnxruntime's own preparation: fold batch norms, compute constants, infer shapes.

    Its symbolic shape inference is skipped. It knows fewer operators than onnx's type inference, and leaves files in
    the current folder when it fails (1.31).
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    raw_path, optimized_path = folder / "raw.onnx", folder / "optimized.onnx"
    onnx.save(model, raw_path)
    logger = logging.getLogger("onnxruntime.quantization.shape_inference")
    logger.disabled = True
    try:
        quant_pre_process(raw_path, optimized_path, skip_symbolic_shape=True)
    finally:
        logger.disabled = False
    preprocessed = onnx.load(optimized_path)
    # A weight has its own shape. onnxruntime transposes some weights and then fails on the old value infos.
    weights = {i.name for i in preprocessed.graph.initializer}
    value_infos = [v for v in preprocessed.graph.value_info if v.name not in weights]
    del preprocessed.graph.value_info[:]
    preprocessed.graph.value_info.extend(value_infos)
    return onnx.shape_inference.infer_shapes(preprocessed) if preprocessed.ByteSize() < 2**31 else preprocessed


def _name_nodes(model: onnx.ModelProto) -> None:
    seen: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{number}"
        seen.add(node.name)
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            _remove_empty_lists(node)
    if not any(p.key == "onnx.infer" for p in model.metadata_props):
        # This tells onnxruntime that shapes were inferred; without it each trial would infer them again.
        model.metadata_props.add(key="onnx.infer", value="onnxruntime.quant")


def _remove_empty_lists(node: onnx.NodeProto) -> None:
    """Remove empty list attributes, which mean the default; onnxruntime's quantizers (1.31) cannot copy a loop with
    one.
    """
    lists = (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS, onnx.AttributeProto.STRINGS)
    for attribute in list(node.attribute):
        if attribute.type in lists and not (attribute.ints or attribute.floats or attribute.strings):
            node.attribute.remove(attribute)


def _read_module(node: onnx.NodeProto) -> str:
    """Return the path of the module that a node comes from, according to the exporter's metadata."""
    text = next((p.value for p in node.metadata_props if p.key == SCOPES_KEY), "")
    scopes: list[str] = [scope for scope in re.findall(r"'([^']*)'", text) if scope]
    if len(scopes) < 2:
        return ""
    return scopes[-2].removeprefix("model").lstrip(".")  # the first scope is Fairway's wrapper around the model


def _list_units(model: onnx.ModelProto, modules: dict[str, str]) -> tuple[Unit, ...]:
    weights = {i.name: i for i in model.graph.initializer if i.data_type == onnx.TensorProto.FLOAT}
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    outputs = {o.name for o in model.graph.output}
    units = []
    for node in model.graph.node:
        if node.op_type not in (*WEIGHTED_OPERATORS, *RECURRENT_OPERATORS):
            continue
        if node.input[1] not in weights or node.input[0] in weights:
            continue
        consumers = users.get(node.output[0], [])
        is_fused = len(consumers) == 1 and consumers[0].op_type in FUSED_OPERATORS and node.output[0] not in outputs
        nodes = (node.name, consumers[0].name) if is_fused and node.op_type.startswith("Conv") else (node.name,)
        dims_of_weights = [weights[name].dims for name in node.input[1:3] if name in weights]
        size = sum(math.prod(dims) for dims in dims_of_weights if len(dims) > 1)
        units.append(Unit(node.name, nodes, node.op_type, size, _read_module(node) or modules.get(node.output[0], "")))
    return tuple(_merge_inseparable(model, units))


def _merge_inseparable(model: onnx.ModelProto, units: list[Unit]) -> list[Unit]:
    """Merge units between which the graph cannot be cut."""
    cuts = find_cuts(model, [unit.nodes for unit in units])
    merged: list[Unit] = []
    for number, unit in enumerate(units):
        if number and number - 1 not in cuts:
            previous = merged.pop()
            unit = replace(previous, nodes=previous.nodes + unit.nodes, weights=previous.weights + unit.weights)
        merged.append(unit)
    return merged
