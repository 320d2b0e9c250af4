"""One prepared graph for everything: constants folded, shapes known, every node named, the units to quantise listed.

A unit is a Conv, Gemm or MatMul with constant weights, a Conv together with the Relu or Clip that only it feeds: what
runtimes fuse is quantised or left alone as a whole. A GRU or LSTM is a unit too, whose weights alone are made narrow.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from fairway.diagnostics.errors import complain
from fairway.tune.quantize.graph_cuts import cuts

HEAVY = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FLOAT_OUTPUT = ("MatMul", "Gemm")
"""Their kernels take bytes and give floats; rounding the result to a byte would gain nothing."""
FOLLOWING = ("Relu", "Clip")
RECURRENT = ("GRU", "LSTM", "RNN")
LEAST_OPSET = 13
"""From here on QuantizeLinear has an axis, without which there is nothing per channel."""
RAISED_OPSET = 17
SCOPES = "pkg.torch.onnx.name_scopes"
"""Where torch's exporter notes the modules that a node comes from."""
QUANTISED = frozenset(
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
    """Something that can be quantised or kept in float by itself."""

    name: str
    nodes: tuple[str, ...]
    operator: str
    weights: int
    """How many numbers its weight holds."""
    module: str = ""

    def __str__(self) -> str:
        return f"{self.module} ({self.operator})" if self.module else self.name


@dataclass(frozen=True)
class Prepared:
    """The graph that every variant is made from."""

    path: Path
    units: tuple[Unit, ...]
    opset: int
    raised_from: int | None
    """The opset of the file, where it was too low and was converted."""

    def load(self) -> onnx.ModelProto:
        return onnx.load(self.path)


def prepare(source: Path, folder: Path) -> Prepared:
    """Prepares the file in `folder`; refuses one that is quantised already, and one that cannot be converted."""
    model = onnx.load(source)
    _refuse_quantised(model, source)
    opset = _opset(model)
    modules = {out: _module(node) for node in model.graph.node for out in node.output if _module(node)}
    if opset < LEAST_OPSET:
        model = _raise_opset(model, source, opset)
    path = folder / "prepared.onnx"
    model = _optimise(model, folder)
    _name_nodes(model)
    onnx.save(model, path)
    raised = opset if opset < LEAST_OPSET else None
    return Prepared(path, _units(model, modules), _opset(model), raised)


def _refuse_quantised(model: onnx.ModelProto, source: Path) -> None:
    kinds = Counter(n.op_type for n in model.graph.node if n.op_type in QUANTISED or n.op_type.startswith("QLinear"))
    if kinds:
        seen = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(3))
        raise complain("FW701", f"{source.name} holds {seen}")


def _opset(model: onnx.ModelProto) -> int:
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)


def _raise_opset(model: onnx.ModelProto, source: Path, opset: int) -> onnx.ModelProto:
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, RAISED_OPSET)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        seen = f"{source.name} has opset {opset}; quantising needs {LEAST_OPSET}, and converting it failed: {first}"
        raise complain("FW704", seen) from error


def _optimise(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """onnxruntime's own preparation: batch norms folded, constants computed, shapes inferred.

    Without its symbolic shapes, which know fewer operators than onnx's inference does types, and which leave files in
    the current folder where they fail (1.31).
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    raw, done = folder / "raw.onnx", folder / "optimised.onnx"
    onnx.save(model, raw)
    logger = logging.getLogger("onnxruntime.quantization.shape_inference")
    logger.disabled = True
    try:
        quant_pre_process(raw, done, skip_symbolic_shape=True)
    finally:
        logger.disabled = False
    ready = onnx.load(done)
    # A weight says its own shape; onnxruntime transposes some, and then falls over what is said here.
    weights = {i.name for i in ready.graph.initializer}
    said = [v for v in ready.graph.value_info if v.name not in weights]
    del ready.graph.value_info[:]
    ready.graph.value_info.extend(said)
    return onnx.shape_inference.infer_shapes(ready) if ready.ByteSize() < 2**31 else ready


def _name_nodes(model: onnx.ModelProto) -> None:
    seen: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{number}"
        seen.add(node.name)
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            _drop_empty(node)
    if not any(p.key == "onnx.infer" for p in model.metadata_props):
        # By this onnxruntime knows that shapes were inferred; without it each trial would infer them again.
        model.metadata_props.add(key="onnx.infer", value="onnxruntime.quant")


def _drop_empty(node: Any) -> None:
    """Empty lists say what leaving them out says; onnxruntime's quantizers (1.31) fail to copy a loop that has one."""
    lists = (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS, onnx.AttributeProto.STRINGS)
    for attribute in list(node.attribute):
        if attribute.type in lists and not (attribute.ints or attribute.floats or attribute.strings):
            node.attribute.remove(attribute)


def _module(node: Any) -> str:
    """The path of the module that a node comes from, by the exporter's notes."""
    said = next((p.value for p in node.metadata_props if p.key == SCOPES), "")
    scopes = [scope for scope in re.findall(r"'([^']*)'", said) if scope]
    return scopes[-2].removeprefix("model").lstrip(".") if len(scopes) > 1 else ""  # Fairway wraps every model


def _units(model: onnx.ModelProto, modules: dict[str, str]) -> tuple[Unit, ...]:
    weights = {i.name: i for i in model.graph.initializer if i.data_type == onnx.TensorProto.FLOAT}
    users: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    outputs = {o.name for o in model.graph.output}
    found = []
    for node in model.graph.node:
        if node.op_type not in (*HEAVY, *RECURRENT) or node.input[1] not in weights or node.input[0] in weights:
            continue
        after = users.get(node.output[0], [])
        joined = len(after) == 1 and after[0].op_type in FOLLOWING and node.output[0] not in outputs
        nodes = (node.name, after[0].name) if joined and node.op_type.startswith("Conv") else (node.name,)
        held = [weights[name].dims for name in node.input[1:3] if name in weights]
        size = sum(math.prod(dims) for dims in held if len(dims) > 1)
        found.append(Unit(node.name, nodes, node.op_type, size, _module(node) or modules.get(node.output[0], "")))
    return tuple(_inseparable(model, found))


def _inseparable(model: onnx.ModelProto, units: list[Unit]) -> list[Unit]:
    """Units between which the graph cannot be cut become one."""
    places = cuts(model, [unit.nodes for unit in units])
    joined: list[Unit] = []
    for number, unit in enumerate(units):
        if number and number - 1 not in places:
            before = joined.pop()
            unit = replace(before, nodes=before.nodes + unit.nodes, weights=before.weights + unit.weights)
        joined.append(unit)
    return joined
