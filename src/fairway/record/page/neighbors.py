"""Find the nodes around one node: those that its inputs come from, and those that read its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from fairway.record.page.graph import find_module, list_subgraphs, name_node
from fairway.record.page.sanitize import PageData, clean_name

if TYPE_CHECKING:
    import onnx

MAX_STEPS = 2
MAX_COLUMN_NODES = 6
"""Nodes in a column. The others are counted."""
MAX_VALUES = 8
"""Inputs and outputs of a node that are listed."""


def find_neighborhood(model: onnx.ModelProto, place: Mapping[str, str]) -> PageData | None:
    """Return columns of nodes around the node that `place` names, or None if the file has no such node."""
    links = _Links(model.graph)
    middle = _find_node(model.graph, place)
    if middle is None:
        return None
    columns = {middle: 0}
    left_out = 0
    directions: tuple[Literal[-1, 1], ...] = (-1, 1)
    for direction in directions:
        edge = [middle]
        for step in range(1, MAX_STEPS + 1):
            candidates = [other for index in edge for other in links.follow(index, direction)]
            near = list(dict.fromkeys(other for other in candidates if other not in columns))
            left_out += max(0, len(near) - MAX_COLUMN_NODES)
            edge = near[:MAX_COLUMN_NODES]
            columns.update(dict.fromkeys(edge, direction * step))
    order = sorted(columns, key=lambda index: (columns[index], index))
    numbers = {index: number for number, index in enumerate(order)}
    return {
        "nodes": [_describe_node(model.graph.node[index], columns[index], index == middle) for index in order],
        "edges": [
            [numbers[links.makers[value]], numbers[index], clean_name(value)]
            for index in order
            for value in dict.fromkeys(_list_inputs(model.graph.node[index]))
            if links.makers.get(value) in numbers
        ],
        "left_out": left_out,
    }


class _Links:
    """The nodes that make and that read each value, by their index in the graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._nodes = graph.node
        self.makers = {value: index for index, node in enumerate(graph.node) for value in node.output if value}
        self._readers: dict[str, list[int]] = {}
        for index, node in enumerate(graph.node):
            for value in _list_inputs(node):
                self._readers.setdefault(value, []).append(index)

    def follow(self, index: int, direction: Literal[-1, 1]) -> Iterator[int]:
        node = self._nodes[index]
        if direction < 0:
            yield from (self.makers[value] for value in _list_inputs(node) if value in self.makers)
        else:
            yield from (reader for value in node.output for reader in self._readers.get(value, ()))


def _find_node(graph: onnx.GraphProto, place: Mapping[str, str]) -> int | None:
    value, name = place.get("value"), place.get("node")
    for index, node in enumerate(graph.node):
        if (value and value in node.output) or (name and node.name == name):
            return index
    return None


def _list_inputs(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, also from inside its loops and branches."""
    yield from (value for value in node.input if value)
    for subgraph in list_subgraphs(node):
        for inner in subgraph.node:
            yield from _list_inputs(inner)


def _describe_node(node: onnx.NodeProto, column: int, wrong: bool) -> PageData:
    scope = find_module(node)
    return {
        "name": clean_name(name_node(node)),
        "operator": clean_name(node.op_type),
        "module": clean_name(".".join(scope[0])) if scope else "",
        "takes": [clean_name(value) for value in node.input if value][:MAX_VALUES],
        "gives": [clean_name(value) for value in node.output[:MAX_VALUES]],
        "column": column,
        "wrong": wrong,
    }
