"""Finds common parts of several captures' graphs: weights with the same bytes, and nodes that compute the same."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
"""Operators with random results: two such nodes are never merged."""


class ValueNumbering:
    """Numbers values. Two values have the same number if they are equal in every run."""

    def __init__(self, linked: Mapping[str, str]) -> None:
        self._keys: dict[Hashable, int] = {}
        self._linked = linked

    def number_graph(self, graph: ir.Graph) -> dict[ir.Value, int]:
        """Return the numbers of a graph's inputs, weights and nodes' outputs."""
        numbers: dict[ir.Value, int] = {}
        for place, value in enumerate(graph.inputs):
            numbers[value] = self._number(("input", place))
        for value in graph.initializers.values():
            if value not in numbers:
                numbers[value] = self._number(("weight", self._make_content_key(value.const_value, value)))
        for node in graph:
            key = self._make_node_key(node, numbers)
            for place, output in enumerate(node.outputs):
                numbers[output] = self._number((key, place))
        return numbers

    def _number(self, key: Hashable) -> int:
        return self._keys.setdefault(key, len(self._keys))

    def _make_node_key(self, node: ir.Node, numbers: Mapping[ir.Value, int]) -> Hashable:
        graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        if node.op_type in _RANDOM or any(attribute.type in graphs for attribute in node.attributes.values()):
            return ("own", id(node))
        attributes = tuple(
            sorted((name, self._make_attribute_key(attribute)) for name, attribute in node.attributes.items())
        )
        inputs = tuple(None if value is None else numbers[value] for value in node.inputs)
        return (node.domain, node.op_type, node.overload, attributes, inputs, len(node.outputs))

    def _make_attribute_key(self, attribute: ir.Attr) -> str:
        value = attribute.value
        if isinstance(value, ir.TensorProtocol):
            return repr(self._make_content_key(value, attribute))
        return f"{attribute.type} {value!r}"

    def _make_content_key(self, tensor: ir.TensorProtocol | None, owner: object) -> Hashable:
        """Return a key that is equal for tensors with the same bytes and shape."""
        if tensor is None:
            return ("own", id(owner))
        kind = (str(tensor.dtype), tuple(tensor.shape))
        if isinstance(tensor, ir.ExternalTensor) and tensor.location in self._linked:
            return (*kind, str(tensor.location), tensor.offset, tensor.length)  # unchanged in a checkpoint
        if tensor.dtype == ir.DataType.STRING:
            return (*kind, repr(tensor.numpy().tolist()))
        return (*kind, hashlib.sha256(_view_bytes(tensor)).hexdigest())


def _view_bytes(tensor: ir.TensorProtocol) -> bytes | memoryview:
    array = tensor.numpy()
    if array.dtype.itemsize * array.size != tensor.nbytes:  # several elements in one byte
        return tensor.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def find_common_numbers(numbered: Sequence[Mapping[ir.Value, int]]) -> set[int]:
    """Return the numbers of values that every graph has."""
    return set.intersection(*({*numbers.values()} for numbers in numbered))
