"""Where a graph can be cut between the units that are quantised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import onnx


def cuts(model: onnx.ModelProto, units: Sequence[Sequence[str]]) -> dict[int, int]:
    """By the number of a unit, the place behind it: the last before the next unit where all that lies across is known.

    Units are given by the names of their nodes, in the graph's order. The last has none, nor has one behind which a
    tensor of unknown type lies across every place. The last place it is because ONNX Runtime (1.31) moves roundings up
    past transposes, and rounds an output of the graph where it meets one: nothing may stand between a cut and a unit.
    """
    nodes = list(model.graph.node)
    place = {node.name: number for number, node in enumerate(nodes)}
    known = value_infos(model)
    last = {o.name: len(nodes) for o in model.graph.output}
    for number, node in enumerate(nodes):
        for name in reads(node):
            last[name] = max(last.get(name, 0), number)
    unknown = [0] * (len(nodes) + 2)
    for number, node in enumerate(nodes):
        for name in node.output:
            if name not in known and last.get(name, -1) > number:
                unknown[number + 1] += 1
                unknown[last[name] + 1] -= 1
    unknown = list(accumulate(unknown))
    found = {}
    for number, (one, after) in enumerate(pairwise(units)):
        between = range(max(place[n] for n in one) + 1, min(place[n] for n in after) + 1)
        legal = [position for position in between if not unknown[position]]
        if legal:
            found[number] = legal[-1]
    return found


def reads(node: Any) -> Iterator[str]:
    """What a node reads, also inside its own graphs, which see everything around them."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
        for graph in graphs:
            made = {o for inner in graph.node for o in inner.output} | {i.name for i in graph.input}
            yield from (n for inner in graph.node for n in reads(inner) if n not in made)
            yield from (o.name for o in graph.output if o.name not in made)


def value_infos(model: onnx.ModelProto) -> dict[str, Any]:
    graph = model.graph
    weights = {i.name for i in graph.initializer}
    return {
        v.name: v
        for v in (*graph.value_info, *graph.output, *graph.input)
        if v.name not in weights and v.type.HasField("tensor_type")
    }
