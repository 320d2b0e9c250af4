"""Small edits of an ONNX graph, from which the mutations are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from fairway.model.dims import Domain
from fairway.model.spec import TensorSpec


@dataclass(frozen=True)
class Know:
    """The knowledge that a mutation may use: the spec, the example's sizes, and every inner value at the example."""

    spec: tuple[TensorSpec, ...]
    domain: Domain
    example: dict[str, int]
    values: dict[str, Any] = field(default_factory=dict)

    def of(self, value: ir.Value | None) -> np.ndarray | None:
        """The value at the example, or the constant it is; None where neither is known."""
        if value is None:
            return None
        fixed = ir.convenience.get_const_tensor(value)
        if fixed is not None:
            return np.asarray(fixed.numpy())
        found = self.values.get(value.name or "")
        return found if isinstance(found, np.ndarray) else None


def load(path: Path) -> ir.Model:
    """The file without what it says of inner shapes and types, which an edit may make untrue."""
    model = ir.load(path)
    outer = {id(v) for v in model.graph.outputs}
    inner = {id(v) for graph in model.graphs() if graph is not model.graph for v in (*graph.outputs, *graph.inputs)}
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if id(value) not in outer | inner:
                value.shape, value.type = None, None
    return model


def nodes(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph.all_nodes() if node.op_type != "Constant"]


def computed(value: ir.Value | None) -> bool:
    return value is not None and ir.convenience.get_const_tensor(value) is None


def constant(model: ir.Model, array: Any, dtype: Any = None) -> ir.Value:
    """A new constant of the whole model, visible in its subgraphs too."""
    tensor = ir.tensor(np.asarray(array, dtype))
    name = f"planted_{len(model.graph.initializers)}"
    value = ir.Value(name=name, shape=ir.Shape(tensor.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    model.graph.register_initializer(value)
    return value


@dataclass
class Chain:
    """Adds nodes at one place, each with a new name for its output."""

    model: ir.Model
    graph: ir.Graph
    before: ir.Node | None = None
    count: int = 0

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> ir.Value:
        given = [v if isinstance(v, ir.Value) else constant(self.model, v) for v in inputs]
        node = ir.node(op, given, attributes)
        tag = self.model.graph.meta["planted"] = self.model.graph.meta.get("planted", 0) + 1
        node.outputs[0].name = f"planted_value_{tag}"
        node.name = f"planted_node_{tag}"
        if self.before is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.before, node)
        return node.outputs[0]


def before(model: ir.Model, node: ir.Node) -> Chain:
    assert isinstance(node.graph, ir.Graph)
    return Chain(model, node.graph, node)


def replace_output(model: ir.Model, index: int, make: Any) -> None:
    """Graph output `index` becomes `make(chain, old value)`, under its old name and declaration."""
    graph = model.graph
    old = graph.outputs[index]
    name, dtype, shape = old.name, old.type, old.shape
    raw = old
    if old.is_graph_input():
        raise ValueError("an output that is an input")
    old.name = f"{name}_raw"
    made = make(Chain(model, graph), raw)
    made.name, made.type, made.shape = name, dtype, shape
    graph.outputs[index] = made


def edges(model: ir.Model) -> Iterator[tuple[str, ir.Node, int]]:
    """Every computed input of every node, with a label."""
    for i, node in enumerate(nodes(model)):
        for j, value in enumerate(node.inputs):
            if computed(value):
                yield f"{i}.{node.op_type}.{j}", node, j


def set_constant(model: ir.Model, node: ir.Node, index: int, array: Any) -> None:
    node.replace_input_with(index, constant(model, array))


def set_attribute(node: ir.Node, name: str, value: Any) -> None:
    node.attributes[name] = ir.convenience.convert_attribute(name, value)
