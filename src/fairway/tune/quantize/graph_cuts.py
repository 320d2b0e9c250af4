"""The places at which a graph can be cut between quantized units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import onnx


def find_cuts(model: onnx.ModelProto, units: Sequence[Sequence[str]]) -> dict[int, int]:
    """Map the number of a unit to the node before which the graph can be cut after this unit.

    Units are given by the names of their nodes, in the graph's order. The cut is the last place before the next unit at
    which the types of all tensors that cross it are known. The last unit has no cut, nor has a unit without such a
    place.

    It is the last place because ONNX Runtime (1.31) moves roundings up past transposes, and rounds an output of the
    graph if it meets one: nothing may be between a cut and the next unit.
    """
    nodes = list(model.graph.node)
    place = {node.name: number for number, node in enumerate(nodes)}
    known = collect_value_infos(model)
    last_use = {o.name: len(nodes) for o in model.graph.output}
    for number, node in enumerate(nodes):
        for name in list_inputs(node):
            last_use[name] = max(last_use.get(name, 0), number)
    unknown = [0] * (len(nodes) + 2)
    for number, node in enumerate(nodes):
        for name in node.output:
            if name not in known and last_use.get(name, -1) > number:
                unknown[number + 1] += 1
                unknown[last_use[name] + 1] -= 1
    unknown = list(accumulate(unknown))
    cuts = {}
    for number, (unit, next_unit) in enumerate(pairwise(units)):
        places = range(max(place[n] for n in unit) + 1, min(place[n] for n in next_unit) + 1)
        allowed = [position for position in places if not unknown[position]]
        if allowed:
            cuts[number] = allowed[-1]
    return cuts


def list_inputs(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, also inside its subgraphs, which can read everything around them."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
        for graph in graphs:
            local = {o for inner in graph.node for o in inner.output} | {i.name for i in graph.input}
            yield from (n for inner in graph.node for n in list_inputs(inner) if n not in local)
            yield from (o.name for o in graph.output if o.name not in local)


def collect_value_infos(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the value infos of all tensors but weights, by name."""
    graph = model.graph
    weights = {i.name for i in graph.initializer}
    return {
        v.name: v
        for v in (*graph.value_info, *graph.output, *graph.input)
        if v.name not in weights and v.type.HasField("tensor_type")
    }
