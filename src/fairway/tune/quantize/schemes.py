"""The ways to make a file smaller or faster; each makes a file of its own from the prepared graph.

int8-dynamic   weights in 8 bits, activations as they come, scaled at run time
int8-static    weights and activations in 8 bits, scaled by calibration (QuantizeLinear/DequantizeLinear pairs)
int4-weights   weights of MatMul and Gemm in 4 bits by blocks, computed in float (MatMulNBits)
fp16, bf16     weights in 16 bits, computed in float32: CPUs have hardly a kernel for the rest
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

from fairway.diagnostics.errors import complain
from fairway.model.cpu import Int8Types
from fairway.tune.quantize.calibration import Ranges
from fairway.tune.quantize.prepare import FLOAT_OUTPUT, FOLLOWING, HEAVY, QUANTISED, RECURRENT, Prepared, Unit

SCHEMES = ("int8-dynamic", "int8-static", "int4-weights", "fp16", "bf16")
TOUCHED = {"int8-dynamic": (*FLOAT_OUTPUT, *RECURRENT), "int4-weights": FLOAT_OUTPUT}
"""The operators whose weights a scheme makes narrow, where these are not all."""
BLOCK = 32
INT8_ACTIVATIONS = 4
"""MatMulNBits' accuracy_level: activations may be rounded to bytes on the way, which is what makes it fast."""


@dataclass(frozen=True)
class Variant:
    """A candidate file, and which units it computes in fewer bits."""

    scheme: str
    path: Path
    quantised: tuple[Unit, ...]
    kept: tuple[Unit, ...]
    weights: int
    """How many weights were made narrow."""


@dataclass(frozen=True)
class Making:
    """All that a scheme may need."""

    prepared: Prepared
    arithmetic: Int8Types
    ranges: Ranges | None
    per_channel: bool
    folder: Path


def make(scheme: str, making: Making, keep: Collection[str] = (), name: str = "") -> Variant:
    """Writes the variant; the 8-bit and 4-bit ones leave the units named in `keep` in float.

    Nothing quantised is a finding (FW705).
    """
    path = making.folder / f"{name or scheme}.onnx"
    units = [unit for unit in making.prepared.units if unit.name not in keep]
    with _quiet():
        if scheme == "int8-static":
            model = quantise_static(making.prepared.load(), units, making)
        elif scheme == "int8-dynamic":
            model = _dynamic(units, making)
        elif scheme == "int4-weights":
            model = _int4(units, making)
        else:
            model = _sixteen_bits(scheme, making)
    count = _narrow_weights(model)
    if not count:
        raise complain("FW705", f"{scheme} found nothing to quantise: {_what_there_is(making.prepared)}")
    onnx.save(model, path)
    done = tuple(unit for unit in units if unit.operator in TOUCHED.get(scheme, (unit.operator,)))
    kept = tuple(unit for unit in making.prepared.units if unit not in done)
    return Variant(scheme, path, done, kept, count)


def quantise_static(model: onnx.ModelProto, units: Collection[Unit], making: Making) -> onnx.ModelProto:
    """The model, or a slice of it, with these units between QuantizeLinear and DequantizeLinear."""
    recurrent = {unit.name for unit in units if unit.operator in RECURRENT}
    names = [name for unit in units if unit.name not in recurrent for name in unit.nodes]
    quantised = _between_pairs(model, names, making) if names else model
    _narrow_recurrent(quantised, recurrent)
    return quantised


def _between_pairs(model: onnx.ModelProto, names: list[str], making: Making) -> onnx.ModelProto:
    from onnxruntime.quantization import QDQQuantizer, QuantType

    assert making.ranges is not None
    kinds = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}
    quantizer = QDQQuantizer(
        model,
        making.per_channel,
        making.arithmetic.reduce_range,
        kinds[making.arithmetic.weights],
        kinds[making.arithmetic.activations],
        _known(making.ranges, model),
        names,
        [],
        [*HEAVY, *FOLLOWING],
        {"OpTypesToExcludeOutputQuantization": [*FLOAT_OUTPUT]},
    )
    quantizer.quantize_model()
    quantised = quantizer.model.model
    _spare_others(quantised, set(names))
    return quantised


def _narrow_recurrent(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Weights of recurrent nodes as bytes, with a scale for each row. The runtime has no kernel that computes so: it
    widens them once, when it loads. The file is a quarter of the size and exactly as fast."""
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


def _known(ranges: Ranges, model: onnx.ModelProto) -> Any:
    """The ranges of this model's tensors only: of a slice these are few, and each is gone through."""
    from onnxruntime.quantization.calibrate import TensorsData

    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    found = {name: one for name, one in ranges.tensors.items() if name in names}
    return TensorsData(ranges.tensors.calibration_method, found)


def _spare_others(model: onnx.ModelProto, names: set[str]) -> None:
    """Whoever computes in float gets the tensor itself, not its rounded copy; so do the model's outputs.

    onnxruntime hands the copy to every user of a tensor that one of them wants in bytes. The residual beside a layer
    would be rounded for nothing.
    """
    nodes = list(model.graph.node)
    rounded = {out for node in nodes if node.name in names and node.op_type not in FLOAT_OUTPUT for out in node.output}
    before = {node.output[0]: node for node in nodes if node.op_type == "QuantizeLinear"}
    outputs = {o.name for o in model.graph.output}
    copies: dict[str, str] = {}
    for node in nodes:
        if node.op_type != "DequantizeLinear" or node.input[0] not in before:
            continue
        first = before[node.input[0]]
        tensor, made = first.input[0], node.output[0]
        if tensor in rounded:
            continue
        if made in outputs:  # the maker's output was renamed, to let the copy have its name
            copied = f"{made}_rounded"
            _rename(nodes, tensor, made)
            first.input[0], node.output[0] = made, copied
            for user in nodes:
                if user.name in names:
                    user.input[:] = [copied if name == made else name for name in user.input]
            tensor, made = made, copied
        copies[made] = tensor
    for node in nodes:
        if node.name not in names and node.op_type not in QUANTISED:
            node.input[:] = [copies.get(name, name) for name in node.input]


def _rename(nodes: Sequence[Any], old: str, new: str) -> None:
    """The output of one node; nobody reads it yet by the old name but the node that rounds it."""
    for node in nodes:
        node.output[:] = [new if name == old else name for name in node.output]


def _dynamic(units: Collection[Unit], making: Making) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = making.folder / "dynamic.onnx"
    # ConvInteger is no use: a ConvNeXt with it took eleven times as long as in float (onnxruntime 1.31).
    quantize_dynamic(
        making.prepared.path,
        path,
        op_types_to_quantize=["MatMul", "Gemm", "LSTM", "Attention"],
        per_channel=making.per_channel,
        reduce_range=making.arithmetic.reduce_range,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=[u.name for u in making.prepared.units if u not in units],
    )
    model = onnx.load(path)
    path.unlink()
    # Of the recurrent ones onnxruntime knows LSTM.
    _narrow_recurrent(model, {u.name for u in units if u.operator in RECURRENT and u.operator != "LSTM"})
    return model


def _int4(units: Collection[Unit], making: Making) -> onnx.ModelProto:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    wrapped = ONNXModel(making.prepared.load())
    wrapped.replace_gemm_with_matmul()
    excluded = [u.name for u in making.prepared.units if u not in units]
    quantizer = MatMulNBitsQuantizer(
        wrapped.model,
        bits=4,
        block_size=BLOCK,
        is_symmetric=True,
        accuracy_level=INT8_ACTIVATIONS,
        nodes_to_exclude=[*excluded, *(f"{name}_MatMul" for name in excluded)],
    )
    quantizer.process()
    return quantizer.model.model


def _sixteen_bits(scheme: str, making: Making) -> onnx.ModelProto:
    import onnx_ir as ir

    from fairway.convert.weights.half_precision import SMALL, compute_wide

    narrow = ir.DataType.FLOAT16 if scheme == "fp16" else ir.DataType.BFLOAT16
    model = ir.load(making.prepared.path)
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or value.dtype != ir.DataType.FLOAT or tensor.nbytes <= 2 * SMALL:
            continue  # at half the size it would count as small, and be made wide again
        numbers = tensor.numpy().astype(narrow.numpy())
        if not np.isfinite(numbers.astype(np.float32)).all():
            continue  # float16 ends at 65504
        value.const_value, value.dtype = ir.tensor(numbers, dtype=narrow, name=value.name), narrow
    compute_wide(model)
    return ir.to_proto(model)


def _narrow_weights(model: onnx.ModelProto) -> int:
    """Weights of rank 2 and more with fewer bits than float32; MatMulNBits keeps its own packed, in three axes."""
    kinds = onnx.TensorProto
    narrow = {kinds.INT8, kinds.UINT8, kinds.INT4, kinds.UINT4, kinds.FLOAT16, kinds.BFLOAT16}
    return sum(1 for one in model.graph.initializer if one.data_type in narrow and len(one.dims) >= 2)


def _what_there_is(prepared: Prepared) -> str:
    from collections import Counter

    kinds = Counter(node.op_type for node in prepared.load().graph.node)
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5))
    return f"the graph has {len(prepared.units)} units with constant weights; {shown}"


@contextmanager
def _quiet() -> Iterator[None]:
    """onnxruntime's quantizers warn about what was decided here on purpose, and one of them sets up the root logger."""
    root = logging.getLogger()
    before = root.level, root.handlers[:], root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        logging.disable(before[2])
