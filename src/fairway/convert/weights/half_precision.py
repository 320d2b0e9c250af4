"""16-bit weights stay as they are in the file, and are computed with in float32.

ONNX Runtime has hardly a kernel for float16 on the CPU, and fewer for bfloat16: it keeps a float32 copy of every
float16 weight from the moment it loads, and refuses bfloat16. Here each weight is cast where it is used, so that only
one copy at a time is wide; rows of a table are cast after they are picked. What lies between is float32, rounded less
often than in PyTorch; the model's inputs and outputs keep their dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
WIDE = ir.DataType.FLOAT
SMALL = 4096
"""Bytes up to which a constant is simply made wide."""


def compute_wide(model: ir.Model) -> bool:
    """Whether there was something narrow to compute with."""
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values(), *(v for n in graph.all_nodes() for v in n.outputs)]
    if not any(value.dtype in NARROW for value in values):
        return False
    outputs = [value.dtype for value in graph.outputs]
    for node in [*graph.all_nodes()]:
        _widen_node(node)
    for value in [*graph.initializers.values()]:
        if value.dtype in NARROW:
            _widen_weight(graph, value)
    for value in graph.inputs:
        if value.dtype in NARROW:
            _cast_for(graph, value, [*value.uses()])
    for place, dtype in enumerate(outputs):
        if dtype in NARROW:
            _cast_output(graph, place, dtype)
    return True


def _widen_node(node: ir.Node) -> None:
    for key in ("to", "dtype"):
        said = node.attributes.get(key)
        if said is not None and said.type == ir.AttributeType.INT and ir.DataType(said.as_int()) in NARROW:
            node.attributes[key] = ir.AttrInt64(key, WIDE)
    constant = node.attributes.get("value")
    if constant is not None and constant.type == ir.AttributeType.TENSOR and constant.as_tensor().dtype in NARROW:
        node.attributes["value"] = ir.AttrTensor("value", _wide(constant.as_tensor()))
    for value in node.outputs:
        if value.dtype in NARROW:
            value.dtype = WIDE


def _wide(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype("float32"), name=tensor.name)


def _widen_weight(graph: ir.Graph, value: ir.Value) -> None:
    tensor = value.const_value
    if tensor is not None and tensor.nbytes <= SMALL:
        value.const_value = _wide(tensor)
        value.dtype = WIDE
        return
    picks = [user for user, place in value.uses() if user.op_type == "Gather" and place == 0]
    for node in picks:
        narrow, rows = value.dtype, node.outputs[0]
        assert narrow is not None
        users = [*rows.uses()]
        rows.dtype = narrow
        _cast_for(graph, rows, users, node)
    _cast_for(graph, value, [(user, place) for user, place in value.uses() if user not in picks])


def _cast_for(
    graph: ir.Graph, value: ir.Value, uses: Sequence[tuple[ir.Node, int]], after: ir.Node | None = None
) -> None:
    """A cast of its own for each use, so that no wide copy outlives it.

    Of the nodes that another waits for, ONNX Runtime (1.31) runs those first that stand last in the file. So casts that
    wait for nothing stand at its head, and run just before they are needed; elsewhere all wide copies would be
    there at once.
    """
    for user, place in uses:
        cast = ir.node("Cast", [value], {"to": WIDE})
        made = cast.outputs[0]
        made.dtype, made.shape, made.name = WIDE, value.shape, f"{value.name}_wide_for_{user.name}_{place}"
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
