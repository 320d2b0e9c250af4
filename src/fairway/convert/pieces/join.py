"""Joins several ONNX graphs to one. An `If` node on the sizes chooses the piece that runs.

Computations that all pieces share run once, before the choice, and each weight is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from fairway.convert.pieces.arithmetic import SizeArithmetic
from fairway.convert.pieces.piece_outputs import FixedDims, merge_output
from fairway.convert.pieces.separate import Region
from fairway.convert.pieces.shared_weights import ValueNumbering, find_common_numbers
from fairway.model.spec import TensorSpec


class CannotJoin(Exception):
    """The captures do not fit into one graph."""


def join_models(
    models: Sequence[ir.Model],
    regions: Sequence[Region],
    spec: Sequence[TensorSpec],
    fixed: Sequence[FixedDims],
    linked: Mapping[str, str],
) -> ir.Model:
    """Return one model that runs `models[i]` if `regions[i]` is the first whose condition is true.

    `fixed` has the dims that each capture fixed, to declare the outputs. The models are consumed.
    """
    graphs = [model.graph for model in models]
    opsets = _merge_opsets(models)
    _check_signatures(graphs)
    numbers = ValueNumbering(linked)
    numbered = [numbers.number_graph(graph) for graph in graphs]
    inputs = list(graphs[0].inputs)
    arithmetic = SizeArithmetic(inputs, spec)
    conditions = [arithmetic.make_condition(str(region)) for region in regions[:-1]]
    outputs = [merge_output([graph.outputs[i] for graph in graphs], fixed) for i in range(len(graphs[0].outputs))]
    weights = _share_weights(graphs, numbered)
    shared = _share_nodes(graphs, numbered, weights)
    bodies = [_make_body(graph, number, inputs) for number, graph in enumerate(graphs)]
    chain = _chain_branches(bodies, conditions, outputs)
    graph = ir.Graph(
        inputs,
        chain.outputs,
        nodes=[*shared, *arithmetic.nodes, chain],
        initializers=weights,
        opset_imports=opsets,
        name="pieces",
    )
    first = models[0]
    return ir.Model(
        graph,
        ir_version=max(model.ir_version for model in models),
        producer_name=first.producer_name,
        producer_version=first.producer_version,
        metadata_props=dict(first.metadata_props),
    )


def _merge_opsets(models: Sequence[ir.Model]) -> dict[str, int]:
    merged: dict[str, int] = {}
    for model in models:
        for domain, version in model.opset_imports.items():
            if merged.setdefault(domain, version) != version:
                raise CannotJoin(f"the captures use opsets {merged[domain]} and {version} of {domain or 'ONNX'}")
    return merged


def _check_signatures(graphs: Sequence[ir.Graph]) -> None:
    first = graphs[0]
    for graph in graphs[1:]:
        if len(graph.inputs) != len(first.inputs) or len(graph.outputs) != len(first.outputs):
            raise CannotJoin("the captures have different numbers of inputs or outputs")
        for value, other in zip((*first.inputs, *first.outputs), (*graph.inputs, *graph.outputs), strict=True):
            if value.dtype != other.dtype:
                raise CannotJoin(f"{value.name} is {value.dtype} in one region of sizes and {other.dtype} in another")


def _share_weights(graphs: Sequence[ir.Graph], numbered: Sequence[Mapping[ir.Value, int]]) -> list[ir.Value]:
    """Take the weights out of all graphs and merge equal ones."""
    kept: dict[int, ir.Value] = {}
    taken = {value.name for value in (*graphs[0].inputs, *graphs[0].outputs)}
    for number, (graph, numbers) in enumerate(zip(graphs, numbered, strict=True)):
        for name in list(graph.initializers):
            value = graph.initializers.pop(name)
            if numbers[value] in kept:
                ir.convenience.replace_all_uses_with(value, kept[numbers[value]])
                continue
            kept[numbers[value]] = value
            value.name = name if name not in taken else f"{name}_piece{number}"
            taken.add(value.name)
    return list(kept.values())


def _share_nodes(
    graphs: Sequence[ir.Graph], numbered: Sequence[Mapping[ir.Value, int]], weights: Sequence[ir.Value]
) -> list[ir.Node]:
    """Remove the nodes that all graphs have in common, and return those of the first graph."""
    common = find_common_numbers(numbered)
    kept: dict[int, ir.Value] = {}
    outside = {*graphs[0].inputs, *weights}
    taken = {value.name for value in outside}  # a weight of another piece may have the name of a node's output here
    shared: list[ir.Node] = []
    for place, (graph, numbers) in enumerate(zip(graphs, numbered, strict=True)):
        _copy_outputs(graph, {value for value in graph.outputs if numbers[value] in common})
        for node in list(graph):
            own = [numbers.get(output) for output in node.outputs]
            if any(number not in common for number in own):
                continue
            if all(number in kept for number in own):
                for output in node.outputs:
                    _merge_shape(kept[numbers[output]], output)
                    ir.convenience.replace_all_uses_with(output, kept[numbers[output]])
                graph.remove(node, safe=True)
            elif place == 0 and all(value is None or value in outside for value in node.inputs):
                graph.remove(node)
                shared.append(node)
                for output in node.outputs:
                    output.name = f"{output.name}/shared" if output.name in taken else output.name
                outside.update(node.outputs)
                kept.update({numbers[output]: output for output in node.outputs})
    return shared


def _copy_outputs(graph: ir.Graph, shared: set[ir.Value]) -> None:
    """Replace these outputs with copies: they are computed outside, and a branch can only return its own values."""
    for place, value in enumerate(graph.outputs):
        if value in shared:
            node = ir.Node("", "Identity", [value], name=f"{value.name}/copy")
            (copy,) = node.outputs
            copy.name, copy.type, copy.shape = f"{value.name}/copy", value.type, value.shape
            graph.append(node)
            graph.outputs[place] = copy
            value.name = f"{value.name}/shared"


def _merge_shape(kept: ir.Value, other: ir.Value) -> None:
    """Reduce the shape of a shared value to what all pieces declare."""
    if kept.shape is None or other.shape is None or len(kept.shape) != len(other.shape):
        kept.shape = None
        return
    kept.shape = ir.Shape([a if a == b else None for a, b in zip(kept.shape, other.shape, strict=True)])


def _make_body(graph: ir.Graph, number: int, inputs: Sequence[ir.Value]) -> ir.Graph:
    """Return a capture's own nodes as the graph of a branch, with names that no other branch has."""
    for own, outer in zip(graph.inputs, inputs, strict=True):
        if own is not outer:
            ir.convenience.replace_all_uses_with(own, outer)
    nodes, outputs = list(graph), list(graph.outputs)
    graph.inputs.clear()
    graph.outputs.clear()
    graph.remove(nodes)
    body = ir.Graph((), outputs, nodes=nodes, name=f"piece{number}")
    for value in _find_inner_values(body):
        value.name = f"piece{number}/{value.name}"
    for place, node in enumerate(body.all_nodes()):
        node.name = f"piece{number}/{node.name or f'{node.op_type}_{place}'}"
    return body


def _find_inner_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield every value that a graph and the graphs within it define."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _find_inner_values(attribute.as_graph())
            elif attribute.type == ir.AttributeType.GRAPHS:
                for inner in attribute.as_graphs():
                    yield from _find_inner_values(inner)


def _chain_branches(bodies: Sequence[ir.Graph], conditions: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Node:
    """Return the outermost `If`; each further one is in the `else` branch of the one before."""
    rest = bodies[-1]
    for number in reversed(range(len(conditions))):
        branches = [ir.AttrGraph("then_branch", bodies[number]), ir.AttrGraph("else_branch", rest)]
        node = ir.Node("", "If", [conditions[number]], branches, num_outputs=len(outputs), name=f"region/If_{number}")
        for value, merged in zip(node.outputs, outputs, strict=True):
            value.name = merged.name if number == 0 else f"region{number}/{merged.name}"
            value.type, value.shape = merged.type, merged.shape
        if number == 0:
            return node
        rest = ir.Graph((), list(node.outputs), nodes=[node], name=f"region{number}")
    raise CannotJoin("there is only one piece")
