"""Stamps a captured block for all the blocks like it: the third of a run, once for each that was taken out.

The second and the third block must be the same nodes in the same order, and each of their inputs must be the block's
own, a weight of the same name, the same value for both, or what the block before hands on. Where that does not hold the
run is refused, with what differs, and the model goes the plain way.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
import torch

from fairway.weights.known import Known, Weights, as_constant
from fairway.weights.repeats import KEPT, Cut, Repeat

SCOPES = "pkg.torch.onnx.name_scopes"
WRAPPER = "model."
"""The level that the wrapper around the user's model adds to every path."""
SMALL = 1024
"""Elements up to which two constants are compared by value."""


class Unlike(Exception):
    """Two blocks that look the same are not the same graph; or one cannot be taken out of it."""


Kind = Literal["inner", "weight", "shared", "handed on", "none"]


@dataclass(frozen=True)
class Source:
    """Where one input of a block's node comes from."""

    kind: Kind
    value: ir.Value | None = None
    place: tuple[int, int] = (0, 0)
    """For `inner` and `handed on`: which node of the block, and which of its outputs."""
    known: Known | None = None


@dataclass
class Block:
    """One block's nodes in the graph."""

    nodes: list[ir.Node] = field(default_factory=list)

    def places(self) -> dict[ir.Value, tuple[int, int]]:
        return {v: (i, k) for i, node in enumerate(self.nodes) for k, v in enumerate(node.outputs)}


def stamp(model: ir.Model, cut: Cut, weights: Weights) -> None:
    """Puts back every block that was taken out of the model before it was captured."""
    for repeat in cut.repeats:
        _stamp(model.graph, repeat, cut.removed, weights)
    _restore_names(model.graph, cut.renumbered)


def _stamp(graph: ir.Graph, repeat: Repeat, removed: Mapping[str, torch.nn.Module], weights: Weights) -> None:
    labels = _labels(graph)
    blocks = [_block(labels, repeat.block(number)) for number in range(KEPT)]
    second, third = blocks[1], blocks[2]
    sources = _match(second, third, repeat, weights)
    _leaves_only_through(second, third)
    last, inside = third, {*third.nodes}
    for number in range(KEPT, repeat.count):
        tensors = dict(_named(removed[repeat.block(number)]))
        made = _copy(graph, third, sources, last, repeat, number, tensors)
        graph.insert_after(last.nodes[-1], made.nodes)
        inside.update(made.nodes)
        last = made
    _hand_over(graph, third, last, inside)


def _named(block: torch.nn.Module) -> Sequence[tuple[str, torch.Tensor]]:
    return [*block.named_parameters(), *block.named_buffers()]


def _labels(graph: ir.Graph) -> dict[ir.Node, tuple[str, ...]]:
    """The modules that each node belongs to. One that says nothing, since a pass made it, belongs to who reads it."""
    labels: dict[ir.Node, tuple[str, ...]] = {}
    for node in reversed(graph):
        said = node.metadata_props.get(SCOPES)
        if said is not None:
            labels[node] = tuple(ast.literal_eval(said))
            continue
        readers = [labels.get(user, ()) for value in node.outputs for user, _ in value.uses()]
        labels[node] = next((label for label in readers if label), ())
    return dict(reversed([*labels.items()]))


def _block(labels: Mapping[ir.Node, tuple[str, ...]], path: str) -> Block:
    nodes = [node for node, label in labels.items() if WRAPPER + path in label]
    if not nodes:
        raise Unlike(f"no node of the graph says that it belongs to {path}")
    for node in nodes:
        if any(one.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for one in node.attributes.values()):
            raise Unlike(f"{path} has a {node.op_type} with a graph of its own")
    return Block(nodes)


def _match(second: Block, third: Block, repeat: Repeat, weights: Weights) -> list[list[Source]]:
    """For each node of the third block, where its inputs come from, once it is seen to be the second's twin."""
    if len(second.nodes) != len(third.nodes):
        raise Unlike(
            f"{repeat.block(1)} has {len(second.nodes)} nodes, {repeat.block(2)} has {len(third.nodes)}"
        )
    here, there = second.places(), third.places()
    found = []
    for one, other in zip(second.nodes, third.nodes, strict=True):
        if not _alike(one, other):
            raise Unlike(f"{one.op_type} {one.name} of {repeat.block(1)} and {other.name} of {repeat.block(2)} differ")
        pairs = zip(one.inputs, other.inputs, strict=True)
        found.append([_source(a, b, here, there, repeat, weights, other) for a, b in pairs])
    return found


def _alike(one: ir.Node, other: ir.Node) -> bool:
    same = (one.op_type, one.domain, one.overload, len(one.inputs), len(one.outputs))
    if same != (other.op_type, other.domain, other.overload, len(other.inputs), len(other.outputs)):
        return False
    if one.attributes.keys() != other.attributes.keys():
        return False
    return all(_same_value(a.value, other.attributes[key].value) for key, a in one.attributes.items())


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, ir.TensorProtocol) and isinstance(other, ir.TensorProtocol):
        same = one.dtype == other.dtype and tuple(one.shape) == tuple(other.shape)
        return same and one.size <= SMALL and np.array_equal(one.numpy(), other.numpy())
    return bool(one == other)


def _source(
    one: ir.Value | None, other: ir.Value | None, here: Mapping[ir.Value, tuple[int, int]],
    there: Mapping[ir.Value, tuple[int, int]], repeat: Repeat, weights: Weights, node: ir.Node,
) -> Source:  # fmt: skip
    """Where an input of the third block comes from, given its twin in the second."""
    if one is None or other is None:
        if one is not other:
            raise Unlike(f"an input of {node.op_type} {node.name} is left out in one of the blocks")
        return Source("none")
    if other in there:
        if here.get(one) != there[other]:
            raise Unlike(f"{node.op_type} {node.name} reads another value inside its block")
        return Source("inner", place=there[other])
    if one is other:
        return Source("shared", other)
    if other in here:
        return Source("handed on", place=here[other])
    if one.const_value is not None and other.const_value is not None:
        known = _weight(one.const_value, other.const_value, repeat, weights)
        if known is not None:
            return Source("weight", other, known=known)
        if _same_value(one.const_value, other.const_value):
            return Source("shared", other)
    raise Unlike(f"{node.op_type} {node.name} reads {other.name}, and its twin {one.name}: how they go on is not known")


def _weight(one: Any, other: Any, repeat: Repeat, weights: Weights) -> Known | None:
    """The weight, by its name inside the block, where both constants are the same view of each block's own."""
    a, b = weights.find(one), weights.find(other)
    if a is None or b is None:
        return None
    inside = [k.name.removeprefix(f"{repeat.block(n)}.") for k, n in ((a, 1), (b, 2))]
    same = inside[0] == inside[1] != a.name and inside[1] != b.name
    if not same or (a.shape, a.strides, a.offset) != (b.shape, b.strides, b.offset):
        return None
    return Known(inside[1], b.shape, b.strides, b.offset)


def _leaves_only_through(second: Block, third: Block) -> None:
    """Whatever the second block makes is for itself and for the third; else somebody collects values of all blocks."""
    inside = {*second.nodes, *third.nodes}
    for node in second.nodes:
        for value in node.outputs:
            outside = [user for user, _ in value.uses() if user not in inside]
            if outside or value.is_graph_output():
                what = f"{outside[0].op_type} {outside[0].name}" if outside else "an output of the model"
                raise Unlike(f"{value.name} of a block in the middle is read by {what}")


def _copy(
    graph: ir.Graph, third: Block, sources: Sequence[Sequence[Source]], last: Block, repeat: Repeat, number: int,
    tensors: Mapping[str, torch.Tensor],
) -> Block:  # fmt: skip
    made = Block()
    for node, origins in zip(third.nodes, sources, strict=True):
        inputs: list[ir.Value | None] = []
        for origin in origins:
            if origin.kind == "inner":
                inputs.append(made.nodes[origin.place[0]].outputs[origin.place[1]])
            elif origin.kind == "handed on":
                inputs.append(last.nodes[origin.place[0]].outputs[origin.place[1]])
            elif origin.kind == "weight":
                inputs.append(_own_weight(graph, origin, repeat, number, tensors))
            else:
                inputs.append(origin.value)
        twin = ir.Node(
            node.domain, node.op_type, inputs, [*node.attributes.values()], overload=node.overload,
            num_outputs=len(node.outputs), name=f"{node.name}_block{number}",
        )  # fmt: skip
        for key, text in node.metadata_props.items():
            twin.metadata_props[key] = text.replace(repeat.block(KEPT - 1), repeat.block(number))
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            # Shapes and types can be changed in place, so each value has its own.
            new.name, new.shape, new.type = f"{old.name}_block{number}", copy(old.shape), copy(old.type)
        made.nodes.append(twin)
    return made


def _own_weight(
    graph: ir.Graph, origin: Source, repeat: Repeat, number: int, tensors: Mapping[str, torch.Tensor]
) -> ir.Value:
    """The block's own weight, once for all the nodes that read it."""
    assert origin.known is not None
    assert origin.value is not None
    view = origin.known
    whole = view.offset == 0 and tensors[view.name].shape == view.shape and tensors[view.name].is_contiguous()
    name = f"{WRAPPER}{repeat.block(number)}.{view.name}"
    if not whole:
        name = f"{name}_{origin.value.name}"
    if name in graph.initializers:
        return graph.initializers[name]
    value = ir.Value(name=name, shape=copy(origin.value.shape), type=copy(origin.value.type))
    value.const_value = as_constant(view.of(tensors[view.name]), name)
    graph.register_initializer(value)
    return value


def _hand_over(graph: ir.Graph, third: Block, last: Block, inside: set[ir.Node]) -> None:
    """What was read from the third block is read from the last."""
    for old_node, new_node in zip(third.nodes, last.nodes, strict=True):
        for old, new in zip(old_node.outputs, new_node.outputs, strict=True):
            for user, place in tuple(old.uses()):
                if user not in inside:
                    user.replace_input_with(place, new)
            for place, output in enumerate(graph.outputs):
                if output is old:
                    graph.outputs[place] = new


def _restore_names(graph: ir.Graph, renumbered: Mapping[str, str]) -> None:
    """Weights behind a run are called as in the whole model. From the back, since a name may be another's old one."""
    for short, whole in reversed([*renumbered.items()]):
        for name in [n for n in graph.initializers if n.startswith(f"{WRAPPER}{short}.")]:
            value = graph.initializers.pop(name)
            value.name = WRAPPER + whole + name.removeprefix(WRAPPER + short)
            graph.register_initializer(value)
