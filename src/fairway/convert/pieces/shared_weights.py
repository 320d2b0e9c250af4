"""What the graphs of several captures have in common: weights with the same bytes, nodes that compute the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
"""Operators that answer differently each time: two of them are never one."""


class Numbers:
    """Gives values a number; two values have the same one if they hold the same in every run."""

    def __init__(self, linked: Mapping[str, str]) -> None:
        self._keys: dict[Any, int] = {}
        self._linked = linked
        self._digests: dict[Any, Any] = {}

    def of_graph(self, graph: ir.Graph) -> dict[ir.Value, int]:
        """Return the numbers of a graph's inputs, weights and nodes' outputs."""
        found: dict[ir.Value, int] = {}
        for place, value in enumerate(graph.inputs):
            found[value] = self._number(("input", place))
        for value in graph.initializers.values():
            if value not in found:
                found[value] = self._number(("weight", self._content(value.const_value, value)))
        for node in graph:
            key = self._node_key(node, found)
            for place, output in enumerate(node.outputs):
                found[output] = self._number((key, place))
        return found

    def _number(self, key: Any) -> int:
        return self._keys.setdefault(key, len(self._keys))

    def _node_key(self, node: ir.Node, numbers: Mapping[ir.Value, int]) -> Any:
        graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        if node.op_type in _RANDOM or any(attribute.type in graphs for attribute in node.attributes.values()):
            return ("own", id(node))
        attributes = tuple(sorted((name, self._attribute(one)) for name, one in node.attributes.items()))
        inputs = tuple(None if value is None else numbers[value] for value in node.inputs)
        return (node.domain, node.op_type, node.overload, attributes, inputs, len(node.outputs))

    def _attribute(self, attribute: ir.Attr) -> str:
        value = attribute.value
        if isinstance(value, ir.TensorProtocol):
            return repr(self._content(value, attribute))
        return f"{attribute.type} {value!r}"

    def _content(self, tensor: Any, owner: Any) -> Any:
        """Return what two weights share that hold the same bytes in the same shape."""
        if tensor is None:
            return ("own", id(owner))
        kind = (str(tensor.dtype), tuple(tensor.shape))
        if isinstance(tensor, ir.ExternalTensor) and tensor.location in self._linked:
            return (
                *kind,
                str(tensor.location),
                tensor.offset,
                tensor.length,
            )  # read from a checkpoint as it lies there
        if tensor.dtype == ir.DataType.STRING:
            return (*kind, repr(tensor.numpy().tolist()))
        return (*kind, hashlib.sha256(memoryview(_bytes(tensor))).hexdigest())


def _bytes(tensor: Any) -> Any:
    array = tensor.numpy()
    if array.dtype.itemsize * array.size != tensor.nbytes:  # several numbers in one byte
        return tensor.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def common_numbers(numbered: Sequence[Mapping[ir.Value, int]]) -> set[int]:
    """Return the numbers of values that every graph has."""
    return set.intersection(*({*numbers.values()} for numbers in numbered))
