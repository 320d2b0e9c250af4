"""Small ONNX files that between them use every place where a tensor, a shape or another file's name can stand."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, helper


def models() -> list[bytes]:
    return [proto.SerializeToString() for proto in (plain(), nested(), functions(), making(), sparse(), odd_types())]


def value(name: str, shape: Any, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def wrap(nodes: Any, weights: Any = (), functions: Any = (), inputs: Any = None) -> Any:
    inputs = [value("x", ["n", 3])] if inputs is None else inputs
    graph = helper.make_graph(list(nodes), "g", inputs, [value("y", ["n", None])], list(weights))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def plain() -> Any:
    weights = [
        helper.make_tensor("w", TensorProto.FLOAT, [3, 4], [0.5] * 12),
        helper.make_tensor("h", TensorProto.FLOAT16, [2], b"\0\1\0\2", raw=True),
        helper.make_tensor("q", TensorProto.INT4, [3], b"\x12\x03", raw=True),
        helper.make_tensor("s", TensorProto.STRING, [1], [b"word"]),
    ]
    proto = wrap([helper.make_node("MatMul", ["x", "w"], ["y"])], weights)
    proto.metadata_props.add(key="fairway", value="{}")
    return proto


def outside(location: str = "w.bin", **entries: str) -> Any:
    tensor = TensorProto(name="e", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


def nested() -> Any:
    """If inside If, with weights, constants and external data at the bottom."""
    constant = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("t", TensorProto.INT64, [1], [4]))
    graph = helper.make_graph([constant], "inner", [], [value("c", [1])], [outside(offset="0", length="16")])
    leaf = helper.make_graph([constant], "leaf", [], [value("c", [1])])
    for depth in range(4):
        node = helper.make_node("If", ["x"], ["c"], then_branch=graph, else_branch=leaf)
        graph = helper.make_graph([node], f"inner{depth}", [], [value("c", [1])])
    return wrap([helper.make_node("If", ["x"], ["y"], then_branch=graph, else_branch=leaf)])


def functions() -> Any:
    node = helper.make_node("Constant", [], ["c"])
    referring = helper.make_attribute("value", 1)
    referring.Clear()
    referring.name, referring.ref_attr_name, referring.type = "value", "given", 4
    node.attribute.append(referring)
    function = helper.make_function("own", "F", [], ["c"], [node], [helper.make_opsetid("", 18)], ["given"])
    default = helper.make_attribute("value", helper.make_tensor("d", TensorProto.INT64, [1], [4]))
    function.attribute_proto.append(default)
    proto = wrap([helper.make_node("F", [], ["y"], domain="own")], functions=[function])
    proto.training_info.add().algorithm.initializer.append(outside())
    return proto


def making() -> Any:
    """Nodes whose output is as large as a constant says."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [10**9, 10**9])
    small = helper.make_tensor("small", TensorProto.INT64, [1], [7])
    nodes = [
        helper.make_node("Constant", [], ["ints"], value_ints=[3, 4]),
        helper.make_node("ConstantOfShape", ["small"], ["a"], value=helper.make_tensor("v", 1, [1], [0.0])),
        helper.make_node("Expand", ["a", "ints"], ["b"]),
        helper.make_node("Tile", ["x", "small"], ["t"]),
        helper.make_node("Range", ["small", "small", "small"], ["r"]),
        helper.make_node("Pad", ["x", "ints"], ["p"]),
        helper.make_node("RandomNormal", [], ["n"], shape=[2, 3]),
        helper.make_node("Resize", ["x", "", "", "small"], ["y"]),
    ]
    return wrap(nodes, [shape, small])


def sparse() -> Any:
    proto = wrap([])
    tensor = proto.graph.sparse_initializer.add(dims=[1000, 1000])
    tensor.values.CopyFrom(helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))
    tensor.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, [1], [5]))
    return proto


def odd_types() -> Any:
    """Sequences of optional tensors, an unknown dtype, giant declared sizes."""
    inner = helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2]))
    sequence = helper.make_sequence_type_proto(inner)
    inputs = [value("x", ["n", 3]), helper.make_value_info("s", sequence), value("giant", [2**62, 2**62])]
    node = helper.make_node("Identity", ["x"], ["y"])
    attribute = helper.make_attribute("types", [inner])
    node.attribute.append(attribute)
    proto = wrap([node], inputs=inputs)
    proto.graph.value_info.append(value("u", [1], 99))
    return proto
