"""Changes to an exported graph, for wrong files that no module of torch writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

Mutation = Callable[[Any], None]


def replace_operator(old: str, new: str) -> Mutation:
    """Change the type of the first node of the type `old`."""

    def mutate(proto: Any) -> None:
        node = next(node for node in proto.graph.node if node.op_type == old)
        node.op_type = new

    return mutate


def set_attribute(operator: str, name: str, value: Any) -> Mutation:
    """Set an attribute of every node of one type."""

    def mutate(proto: Any) -> None:
        nodes = [node for node in proto.graph.node if node.op_type == operator]
        assert nodes, f"no {operator}"
        for node in nodes:
            kept = [attribute for attribute in node.attribute if attribute.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return mutate


def change_constants(accept: Callable[[np.ndarray], bool], change: Callable[[np.ndarray], np.ndarray]) -> Mutation:
    """Change each initializer that `accept` accepts; at least one must be."""

    def mutate(proto: Any) -> None:
        changed = 0
        for tensor in proto.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if accept(array):
                tensor.CopyFrom(numpy_helper.from_array(change(array.copy()).astype(array.dtype), tensor.name))
                changed += 1
        assert changed, "no initializer was changed"

    return mutate


def wrap_output(index: int, *nodes: tuple[str, list[str], dict[str, Any]], **constants: Any) -> Mutation:
    """Put nodes behind an output. Among their inputs, `$` is the value so far; other names are `constants`."""

    def mutate(proto: Any) -> None:
        graph = proto.graph
        output = graph.output[index].name
        inner = f"{output}_before"
        for node in graph.node:
            node.output[:] = [inner if name == output else name for name in node.output]
            node.input[:] = [inner if name == output else name for name in node.input]
        for name, value in constants.items():
            graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        value = inner
        for number, (operator, inputs, attributes) in enumerate(nodes):
            result = output if number == len(nodes) - 1 else f"{output}_after_{number}"
            named = [value if name == "$" else name for name in inputs]
            graph.node.append(helper.make_node(operator, named, [result], **attributes))
            value = result

    return mutate


def rename_outputs(first: int, second: int) -> Mutation:
    """Exchange two outputs."""

    def mutate(proto: Any) -> None:
        graph = proto.graph
        names = {
            graph.output[first].name: graph.output[second].name,
            graph.output[second].name: graph.output[first].name,
        }
        for node in graph.node:
            node.output[:] = [names.get(name, name) for name in node.output]
            node.input[:] = [names.get(name, name) for name in node.input]

    return mutate


def is_shape(*shape: int) -> Callable[[np.ndarray], bool]:
    return lambda array: array.shape == shape


def is_value(value: float) -> Callable[[np.ndarray], bool]:
    """Accept scalars equal to the value, as float32 sees it."""
    return lambda array: array.size == 1 and bool(np.isclose(array.astype(np.float64), value, rtol=1e-5, atol=0).all())


def set_value(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.full_like(array, value)
