"""The quantization schemes. Each makes a file from the prepared graph.

int8-dynamic   weights in 8 bits, activations scaled at run time
int8-static    weights and activations in 8 bits, scaled by calibration (QuantizeLinear/DequantizeLinear pairs)
int4-weights   weights of MatMul and Gemm in 4 bits by blocks, computed in float (MatMulNBits)
fp16, bf16     weights in 16 bits, computed in float32, because CPUs have few kernels for 16 bits
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.model.cpu import Int8Types
from fairway.tune.quantize.calibration import ActivationRanges
from fairway.tune.quantize.prepare import (
    FLOAT_OUTPUT_OPERATORS,
    FUSED_OPERATORS,
    QUANTIZED_OPERATORS,
    RECURRENT_OPERATORS,
    WEIGHTED_OPERATORS,
    PreparedGraph,
    Unit,
)

SCHEMES = ("int8-dynamic", "int8-static", "int4-weights", "fp16", "bf16")
NARROWED_OPERATORS = {
    "int8-dynamic": (*FLOAT_OUTPUT_OPERATORS, *RECURRENT_OPERATORS),
    "int4-weights": FLOAT_OUTPUT_OPERATORS,
}
"""The operators whose weights a scheme quantizes, if not all."""
INT4_BLOCK_SIZE = 32
INT8_ACCURACY_LEVEL = 4
"""MatMulNBits' accuracy_level. It may round activations to bytes on the way, which makes it fast."""


@dataclass(frozen=True)
class Variant:
    """A candidate file, and the units that it computes in fewer bits."""

    scheme: str
    path: Path
    quantized: tuple[Unit, ...]
    kept: tuple[Unit, ...]
    weights: int
    """The number of quantized weights."""


@dataclass(frozen=True)
class QuantizeContext:
    """Everything a scheme may need."""

    prepared: PreparedGraph
    arithmetic: Int8Types
    ranges: ActivationRanges | None
    per_channel: bool
    folder: Path


def make_variant(scheme: str, context: QuantizeContext, keep: Collection[str] = (), name: str = "") -> Variant:
    """Write the variant; the 8-bit and 4-bit schemes leave the units named in `keep` in float.

    Fails with FW705 if nothing was quantized.
    """
    path = context.folder / f"{name or scheme}.onnx"
    units = [unit for unit in context.prepared.units if unit.name not in keep]
    with _silence_quantizers():
        if scheme == "int8-static":
            model = quantize_static(context.prepared.load(), units, context)
        elif scheme == "int8-dynamic":
            model = _make_dynamic(units, context)
        elif scheme == "int4-weights":
            model = _make_int4(units, context)
        else:
            model = _make_sixteen_bit(scheme, context)
    count = _count_narrow_weights(model)
    if not count:
        raise complain(
            Code.NOTHING_QUANTIZED, f"{scheme} found nothing to quantize: {_describe_graph(context.prepared)}"
        )
    onnx.save(model, path)
    quantized = tuple(unit for unit in units if unit.operator in NARROWED_OPERATORS.get(scheme, (unit.operator,)))
    kept = tuple(unit for unit in context.prepared.units if unit not in quantized)
    return Variant(scheme, path, quantized, kept, count)


def quantize_static(model: onnx.ModelProto, units: Collection[Unit], context: QuantizeContext) -> onnx.ModelProto:
    """Return the model or a slice of it with these units between QuantizeLinear and DequantizeLinear."""
    recurrent = {unit.name for unit in units if unit.operator in RECURRENT_OPERATORS}
    names = [name for unit in units if unit.name not in recurrent for name in unit.nodes]
    quantized = _insert_qdq_pairs(model, names, context) if names else model
    _narrow_recurrent_weights(quantized, recurrent)
    return quantized


def _insert_qdq_pairs(model: onnx.ModelProto, names: list[str], context: QuantizeContext) -> onnx.ModelProto:
    from onnxruntime.quantization import QDQQuantizer, QuantType

    assert context.ranges is not None
    quant_types = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}
    quantizer = QDQQuantizer(
        model,
        context.per_channel,
        context.arithmetic.reduce_range,
        quant_types[context.arithmetic.weights],
        quant_types[context.arithmetic.activations],
        _select_ranges(context.ranges, model),
        names,
        [],
        [*WEIGHTED_OPERATORS, *FUSED_OPERATORS],
        {"OpTypesToExcludeOutputQuantization": [*FLOAT_OUTPUT_OPERATORS]},
    )
    quantizer.quantize_model()
    quantized = quantizer.model.model
    _bypass_rounding(quantized, set(names))
    return quantized


def _narrow_recurrent_weights(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Store the weights of recurrent nodes as bytes, with a scale for each row.

    ONNX Runtime has no kernel that computes with them. It widens them once when it loads the file, which is a quarter
    of the size and exactly as fast.
    """
    weights = {i.name: i for i in model.graph.initializer}
    wide = {name for node in model.graph.node if node.name in names for name in node.input[1:3] if name in weights}
    for name in sorted(wide):
        numbers = onnx.numpy_helper.to_array(weights[name])
        largest = np.abs(numbers).max(axis=(0, 2))
        scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
        narrow = np.clip(np.rint(numbers / scale[None, :, None]), -127, 127).astype(np.int8)
        model.graph.initializer.remove(weights[name])
        model.graph.initializer.extend(
            (
                onnx.numpy_helper.from_array(narrow, f"{name}_quantized"),
                onnx.numpy_helper.from_array(scale, f"{name}_scale"),
            )
        )
        widen = onnx.helper.make_node(
            "DequantizeLinear", [f"{name}_quantized", f"{name}_scale"], [name], f"{name}_DequantizeLinear", axis=1
        )
        model.graph.node.insert(0, widen)


def _select_ranges(ranges: ActivationRanges, model: onnx.ModelProto) -> Any:
    """Return the ranges of this model's tensors only. A slice has few, and the quantizer visits every range."""
    from onnxruntime.quantization.calibrate import TensorsData

    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    selected = {name: range_ for name, range_ in ranges.tensors.items() if name in names}
    return TensorsData(ranges.tensors.calibration_method, selected)


def _bypass_rounding(model: onnx.ModelProto, names: set[str]) -> None:
    """Connect nodes that compute in float, and the model's outputs, to the tensor itself and not to its rounded copy.

    onnxruntime gives the copy to every user of a tensor if one of them needs bytes. The residual connection around a
    layer would be rounded for nothing.
    """
    nodes = list(model.graph.node)
    rounded = {
        out
        for node in nodes
        if node.name in names and node.op_type not in FLOAT_OUTPUT_OPERATORS
        for out in node.output
    }
    quantize_nodes = {node.output[0]: node for node in nodes if node.op_type == "QuantizeLinear"}
    outputs = {o.name for o in model.graph.output}
    copies: dict[str, str] = {}
    for node in nodes:
        if node.op_type != "DequantizeLinear" or node.input[0] not in quantize_nodes:
            continue
        quantize_node = quantize_nodes[node.input[0]]
        tensor, copy = quantize_node.input[0], node.output[0]
        if tensor in rounded:
            continue
        if copy in outputs:  # the tensor was renamed so that its rounded copy has the output's name
            rounded_name = f"{copy}_rounded"
            _rename_output(nodes, tensor, copy)
            quantize_node.input[0], node.output[0] = copy, rounded_name
            for user in nodes:
                if user.name in names:
                    user.input[:] = [rounded_name if name == copy else name for name in user.input]
            tensor, copy = copy, rounded_name
        copies[copy] = tensor
    for node in nodes:
        if node.name not in names and node.op_type not in QUANTIZED_OPERATORS:
            node.input[:] = [copies.get(name, name) for name in node.input]


def _rename_output(nodes: Sequence[onnx.NodeProto], old: str, new: str) -> None:
    """Rename the output of one node. Only the node that rounds it reads the old name."""
    for node in nodes:
        node.output[:] = [new if name == old else name for name in node.output]


def _make_dynamic(units: Collection[Unit], context: QuantizeContext) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = context.folder / "dynamic.onnx"
    # Without ConvInteger: a ConvNeXt with it took eleven times as long as in float (onnxruntime 1.31).
    quantize_dynamic(
        context.prepared.path,
        path,
        op_types_to_quantize=["MatMul", "Gemm", "LSTM", "Attention"],
        per_channel=context.per_channel,
        reduce_range=context.arithmetic.reduce_range,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=[u.name for u in context.prepared.units if u not in units],
    )
    model = onnx.load(path)
    path.unlink()
    # LSTM is the only recurrent operator that onnxruntime quantizes.
    _narrow_recurrent_weights(
        model, {u.name for u in units if u.operator in RECURRENT_OPERATORS and u.operator != "LSTM"}
    )
    return model


def _make_int4(units: Collection[Unit], context: QuantizeContext) -> onnx.ModelProto:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    onnx_model = ONNXModel(context.prepared.load())
    onnx_model.replace_gemm_with_matmul()
    excluded = [u.name for u in context.prepared.units if u not in units]
    quantizer = MatMulNBitsQuantizer(
        onnx_model.model,
        bits=4,
        block_size=INT4_BLOCK_SIZE,
        is_symmetric=True,
        accuracy_level=INT8_ACCURACY_LEVEL,
        nodes_to_exclude=[*excluded, *(f"{name}_MatMul" for name in excluded)],
    )
    quantizer.process()
    return quantizer.model.model


def _make_sixteen_bit(scheme: str, context: QuantizeContext) -> onnx.ModelProto:
    import onnx_ir as ir

    from fairway.convert.weights.half_precision import MAX_WIDENED_BYTES, compute_in_float32

    narrow = ir.DataType.FLOAT16 if scheme == "fp16" else ir.DataType.BFLOAT16
    model = ir.load(context.prepared.path)
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or value.dtype != ir.DataType.FLOAT or tensor.nbytes <= 2 * MAX_WIDENED_BYTES:
            continue  # at half the size it would count as small and be widened again
        numbers = tensor.numpy().astype(narrow.numpy())
        if not np.isfinite(numbers.astype(np.float32)).all():
            continue  # the largest float16 is 65504
        value.const_value, value.dtype = ir.tensor(numbers, dtype=narrow, name=value.name), narrow
    compute_in_float32(model)
    return ir.to_proto(model)


def _count_narrow_weights(model: onnx.ModelProto) -> int:
    """Count the weights of rank 2 or more with fewer bits than float32. MatMulNBits packs its own in three axes."""
    types = onnx.TensorProto
    narrow = {types.INT8, types.UINT8, types.INT4, types.UINT4, types.FLOAT16, types.BFLOAT16}
    return sum(1 for weight in model.graph.initializer if weight.data_type in narrow and len(weight.dims) >= 2)


def _describe_graph(prepared: PreparedGraph) -> str:
    from collections import Counter

    kinds = Counter(node.op_type for node in prepared.load().graph.node)
    operators = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5))
    return f"the graph has {len(prepared.units)} units with constant weights; {operators}"


@contextmanager
def _silence_quantizers() -> Iterator[None]:
    """Silence onnxruntime's quantizers, which warn about choices made here on purpose.

    One of them also sets up the root logger, which is restored.
    """
    root = logging.getLogger()
    before = root.level, root.handlers[:], root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        logging.disable(before[2])
