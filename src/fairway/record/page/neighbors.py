"""The nodes around one node: who gives it its values, and who takes what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fairway.record.page.graph import module_of
from fairway.record.page.sanitize import name

STEPS = 2
WIDE = 6
"""Nodes in a column; what is beyond is counted."""


def neighbourhood(proto: Any, at: Mapping[str, str]) -> dict[str, Any] | None:
    """Columns of nodes from two steps before to two steps after the one named; None where the file has none such."""
    graph = proto.graph
    middle = _find(graph, at)
    if middle is None:
        return None
    makers = {value: index for index, node in enumerate(graph.node) for value in node.output if value}
    takers: dict[str, list[int]] = {}
    for index, node in enumerate(graph.node):
        for value in _reads(node):
            takers.setdefault(value, []).append(index)
    columns = {middle: 0}
    left_out = 0
    for way in (-1, 1):
        edge = [middle]
        for step in range(1, STEPS + 1):
            found = [one for index in edge for one in _next(graph.node[index], way, makers, takers)]
            near = list(dict.fromkeys(one for one in found if one not in columns))
            left_out += max(0, len(near) - WIDE)
            edge = near[:WIDE]
            columns.update(dict.fromkeys(edge, way * step))
    order = sorted(columns, key=lambda index: (columns[index], index))
    place = {index: number for number, index in enumerate(order)}
    return {
        "nodes": [_shown(graph.node[index], columns[index], index == middle) for index in order],
        "edges": [
            [place[makers[value]], place[index], name(value)]
            for index in order
            for value in dict.fromkeys(_reads(graph.node[index]))
            if makers.get(value) in place
        ],
        "left_out": left_out,
    }


def _find(graph: Any, at: Mapping[str, str]) -> int | None:
    value, called = at.get("value"), at.get("node")
    for index, node in enumerate(graph.node):
        if (value and value in node.output) or (called and node.name == called):
            return index
    return None


def _next(node: Any, way: int, makers: Mapping[str, int], takers: Mapping[str, list[int]]) -> Iterator[int]:
    if way < 0:
        yield from (makers[value] for value in _reads(node) if value in makers)
    else:
        yield from (index for value in node.output for index in takers.get(value, ()))


def _reads(node: Any) -> Iterator[str]:
    """What a node takes, also from inside its loops and choices."""
    yield from (value for value in node.input if value)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)


def _shown(node: Any, column: int, wrong: bool) -> dict[str, Any]:
    scope = module_of(node)
    weights = [name(value) for value in node.input if value]
    return {
        "name": name(node.name or (node.output[0] if node.output else "")),
        "operator": name(node.op_type),
        "module": name(".".join(scope[0])) if scope else "",
        "takes": weights[:8],
        "gives": [name(value) for value in node.output[:8]],
        "column": column,
        "wrong": wrong,
    }
