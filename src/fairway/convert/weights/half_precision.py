"""Changes a graph to compute in float32, while 16-bit weights stay unchanged in the file.

ONNX Runtime has few CPU kernels for float16, and fewer for bfloat16: it keeps a float32 copy of every float16 weight
from the moment it loads, and refuses bfloat16. Here each weight is cast where it is used, so that only one copy at a
time is wide; rows of a table are cast after they are gathered. Intermediate values are float32, rounded less often than
in PyTorch. The model's inputs and outputs keep their dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

NARROW_TYPES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
WIDE_TYPE = ir.DataType.FLOAT
MAX_WIDENED_BYTES = 4096
"""Constants up to this size are converted to float32."""


def compute_in_float32(model: ir.Model) -> bool:
    """Change the graph; return whether it contained 16-bit floats."""
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values(), *(v for n in graph.all_nodes() for v in n.outputs)]
    if not any(value.dtype in NARROW_TYPES for value in values):
        return False
    outputs = [value.dtype for value in graph.outputs]
    for node in [*graph.all_nodes()]:
        _widen_node(node)
    for value in [*graph.initializers.values()]:
        if value.dtype in NARROW_TYPES:
            _widen_weight(graph, value)
    for value in graph.inputs:
        if value.dtype in NARROW_TYPES:
            _cast_for(graph, value, [*value.uses()])
    for place, dtype in enumerate(outputs):
        if dtype in NARROW_TYPES:
            _cast_output(graph, place, dtype)
    return True


def _widen_node(node: ir.Node) -> None:
    for key in ("to", "dtype"):
        target = node.attributes.get(key)
        if target is not None and target.type == ir.AttributeType.INT and ir.DataType(target.as_int()) in NARROW_TYPES:
            node.attributes[key] = ir.AttrInt64(key, WIDE_TYPE)
    constant = node.attributes.get("value")
    if constant is not None and constant.type == ir.AttributeType.TENSOR and constant.as_tensor().dtype in NARROW_TYPES:
        node.attributes["value"] = ir.AttrTensor("value", _convert_to_float32(constant.as_tensor()))
    for value in node.outputs:
        if value.dtype in NARROW_TYPES:
            value.dtype = WIDE_TYPE


def _convert_to_float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype("float32"), name=tensor.name)


def _widen_weight(graph: ir.Graph, value: ir.Value) -> None:
    tensor = value.const_value
    if tensor is not None and tensor.nbytes <= MAX_WIDENED_BYTES:
        value.const_value = _convert_to_float32(tensor)
        value.dtype = WIDE_TYPE
        return
    gathers = [user for user, place in value.uses() if user.op_type == "Gather" and place == 0]
    for node in gathers:
        narrow, rows = value.dtype, node.outputs[0]
        assert narrow is not None
        users = [*rows.uses()]
        rows.dtype = narrow
        _cast_for(graph, rows, users, node)
    _cast_for(graph, value, [(user, place) for user, place in value.uses() if user not in gathers])


def _cast_for(
    graph: ir.Graph, value: ir.Value, uses: Sequence[tuple[ir.Node, int]], after: ir.Node | None = None
) -> None:
    """Add a separate cast for each use, so that no wide copy outlives its use.

    Of the nodes that another waits for, ONNX Runtime (1.31) first runs those that come last in the file. So casts that
    wait for nothing go to the start of the file, and run just before they are needed. In any other place all wide
    copies would exist at once.
    """
    for user, place in uses:
        cast = ir.node("Cast", [value], {"to": WIDE_TYPE})
        made = cast.outputs[0]
        made.dtype, made.shape, made.name = WIDE_TYPE, value.shape, f"{value.name}_wide_for_{user.name}_{place}"
        if after is not None:
            graph.insert_after(after, cast)
        else:
            graph.insert_before(graph[0], cast)
        user.replace_input_with(place, made)


def _cast_output(graph: ir.Graph, place: int, dtype: ir.DataType) -> None:
    value = graph.outputs[place]
    cast = ir.node("Cast", [value], {"to": dtype})
    made = cast.outputs[0]
    made.dtype, made.shape, made.name = dtype, value.shape, f"{value.name}_narrow"
    graph.append(cast)
    graph.outputs[place] = made
