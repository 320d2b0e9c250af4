"""Stamps a captured block for all the blocks like it: the last of a run, once for each that was taken out.

It and the one before must be the same nodes in the same order, and each of their inputs must be the block's own, a
weight of the same name, the same value for both, or what the block before hands on. A first block may compute more,
which all share. Where that does not hold the run is refused, with what differs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
import torch

from fairway.convert.blocks.repeats import Repeat, ShortenedModel
from fairway.convert.weights.recognize import KnownWeight, WeightAddresses, as_constant

SCOPES = "pkg.torch.onnx.name_scopes"
WRAPPER = "model."
"""The level that the wrapper around the user's model adds to every path."""
SMALL = 1024
"""Elements up to which two constants are compared by value."""


class Unlike(Exception):
    """Two blocks that look the same are not the same graph; or one cannot be taken out of it."""


Kind = Literal["inner", "weight", "shared", "handed on", "none"]


@dataclass(frozen=True)
class InputSource:
    """Where one input of a block's node comes from."""

    kind: Kind
    value: ir.Value | None = None
    place: tuple[int, int] = (0, 0)
    """For `inner` and `handed on`: which node of a block, and which of its outputs."""
    known: KnownWeight | None = None


@dataclass
class Block:
    """One block's nodes in the graph."""

    nodes: list[ir.Node] = field(default_factory=list)

    def places(self) -> dict[ir.Value, tuple[int, int]]:
        return {v: (i, k) for i, node in enumerate(self.nodes) for k, v in enumerate(node.outputs)}


def stamp(model: ir.Model, cut: ShortenedModel, weights: WeightAddresses) -> None:
    """Puts back every block that was taken out of the model before it was captured."""
    for repeat in cut.repeats:
        _stamp(model.graph, repeat, cut.removed, weights)


def _stamp(graph: ir.Graph, repeat: Repeat, removed: Mapping[str, torch.nn.Module], weights: WeightAddresses) -> None:
    labels = _labels(graph)
    before, pattern = (_block(labels, repeat.block(repeat.kept - back)) for back in (2, 1))
    pair = Pair(before, pattern, repeat, weights)
    sources = pair.match()
    _leaves_only_through(pair)
    last, inside = pattern, {*pattern.nodes}
    sizes = {word for value in graph.inputs for dim in value.shape or () for word in _words(dim)}
    for number in range(repeat.kept, repeat.count):
        tensors = dict(_named(removed[repeat.block(number)]))
        made = _copy(graph, pattern, sources, last, repeat, number, tensors, sizes)
        graph.insert_after(last.nodes[-1], made.nodes)
        inside.update(made.nodes)
        last = made
    _hand_over(graph, pattern, last, inside)


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


class Pair:
    """The block that is stamped and the one before it, and which value is whose twin, as far as is known."""

    def __init__(self, before: Block, pattern: Block, repeat: Repeat, weights: WeightAddresses) -> None:
        self.repeat, self.weights = repeat, weights
        self.before, self.pattern = before, pattern
        self.places = pattern.places()
        self.owned = before.places()
        self.twins: dict[ir.Value, ir.Value] = {}

    def match(self) -> list[list[InputSource]]:
        """For each node of the pattern, where its inputs come from, once it is seen to have a twin."""
        numbers = self.repeat.kept - 2, self.repeat.kept - 1
        names = [self.repeat.block(number) for number in numbers]
        spare = len(self.before.nodes) - len(self.pattern.nodes)
        if spare < 0 or (spare and numbers[0] > 0):
            raise Unlike(f"{names[0]} has {len(self.before.nodes)} nodes, {names[1]} has {len(self.pattern.nodes)}")
        found = []
        rest = iter(self.before.nodes)
        for node in self.pattern.nodes:
            while True:
                twin = next(rest)
                try:
                    if not _alike(twin, node):
                        raise Unlike(f"{twin.op_type} {twin.name} of {names[0]} and {node.name} of {names[1]} differ")
                    found.append([self._source(*both, node) for both in zip(twin.inputs, node.inputs, strict=True)])
                    break
                except Unlike:
                    spare -= 1
                    if spare < 0:
                        raise
            self.twins.update(zip(twin.outputs, node.outputs, strict=True))
        return [[self._settled(source) for source in sources] for sources in found]

    def _source(self, one: ir.Value | None, other: ir.Value | None, node: ir.Node) -> InputSource:
        """Where an input of the pattern comes from, given its twin's."""
        if one is None or other is None:
            if one is not other:
                raise Unlike(f"an input of {node.op_type} {node.name} is left out in one of the blocks")
            return InputSource("none")
        if other in self.places:
            if self.twins.get(one) is not other:
                raise Unlike(f"{node.op_type} {node.name} reads another value inside its block")
            return InputSource("inner", place=self.places[other])
        if one is other:
            return InputSource("shared", other)
        if other in self.owned and one not in self.owned:
            return InputSource("handed on", other)
        if one.const_value is not None and other.const_value is not None:
            known = _weight(one.const_value, other.const_value, self.repeat, self.weights)
            if known is not None:
                return InputSource("weight", other, known=known)
            if _same_value(one.const_value, other.const_value):
                return InputSource("shared", other)
        raise Unlike(
            f"{node.op_type} {node.name} reads {other.name}, and its twin {one.name}: how they go on is not known"
        )

    def _settled(self, source: InputSource) -> InputSource:
        """What a block hands on is made by each; what is shared is made by the first alone."""
        value = source.value
        if value is None or value not in self.owned or (source.kind == "shared" and value not in self.twins):
            return source
        if source.kind == "shared" or value not in self.twins:
            raise Unlike(f"whether {value.name} is shared by all blocks or made by each is not known")
        return replace(source, place=self.places[self.twins[value]])


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


def _weight(one: Any, other: Any, repeat: Repeat, weights: WeightAddresses) -> KnownWeight | None:
    """The weight, by its name inside the block, where both constants are the same view of each block's own."""
    a, b = weights.find(one), weights.find(other)
    if a is None or b is None:
        return None
    inside = [k.name.removeprefix(f"{repeat.block(repeat.kept - back)}.") for k, back in ((a, 2), (b, 1))]
    same = inside[0] == inside[1] != a.name and inside[1] != b.name
    if not same or (a.shape, a.strides, a.offset) != (b.shape, b.strides, b.offset):
        return None
    return KnownWeight(inside[1], b.shape, b.strides, b.offset)


def _leaves_only_through(pair: Pair) -> None:
    """What both blocks make, the first makes for itself and the second; else somebody collects values of all blocks."""
    inside = {*pair.before.nodes, *pair.pattern.nodes}
    for value in pair.twins:
        outside = [user for user, _ in value.uses() if user not in inside]
        if outside or value.is_graph_output():
            what = f"{outside[0].op_type} {outside[0].name}" if outside else "an output of the model"
            raise Unlike(f"{value.name} of a block in the middle is read by {what}")


def _copy(
    graph: ir.Graph,
    pattern: Block,
    sources: Sequence[Sequence[InputSource]],
    last: Block,
    repeat: Repeat,
    number: int,
    tensors: Mapping[str, torch.Tensor],
    sizes: set[str],
) -> Block:
    made = Block()
    for node, origins in zip(pattern.nodes, sources, strict=True):
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
            node.domain,
            node.op_type,
            inputs,
            [*node.attributes.values()],
            overload=node.overload,
            num_outputs=len(node.outputs),
            name=f"{node.name}_block{number}",
        )
        for key, text in node.metadata_props.items():
            twin.metadata_props[key] = text.replace(repeat.block(repeat.kept - 1), repeat.block(number))
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            # Shapes and types can be changed in place, so each value has its own.
            new.name, new.type = f"{old.name}_block{number}", copy(old.type)
            new.shape = _own_shape(old.shape, number, sizes)
        made.nodes.append(twin)
    return made


def _own_shape(shape: ir.Shape | None, number: int, sizes: set[str]) -> ir.Shape | None:
    """Sizes that follow from the inputs' are those of all blocks; one that a block's values decide is its own.

    Runtimes put two values of one size into the same place, also where the size has only a name.
    """
    return shape and ir.Shape([dim if _words(dim) <= sizes else f"{dim}_block{number}" for dim in shape])


def _words(dim: int | ir.SymbolicDim) -> set[str]:
    """The names in a size such as `4*batch` or `Max(1, time)`, functions left out."""
    said = dim.value if isinstance(dim, ir.SymbolicDim) else None
    return {*re.findall(r"\b[A-Za-z_]\w*\b(?!\()", str(said))} if said is not None else set()


def _own_weight(
    graph: ir.Graph, origin: InputSource, repeat: Repeat, number: int, tensors: Mapping[str, torch.Tensor]
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
    value = ir.Value(name=name, shape=ir.Shape(view.shape), type=copy(origin.value.type))
    value.const_value = as_constant(view.of(tensors[view.name]), name)
    graph.register_initializer(value)
    return value


def _hand_over(graph: ir.Graph, pattern: Block, last: Block, inside: set[ir.Node]) -> None:
    """What was read from the pattern is read from the last."""
    for old_node, new_node in zip(pattern.nodes, last.nodes, strict=True):
        for old, new in zip(old_node.outputs, new_node.outputs, strict=True):
            for user, place in tuple(old.uses()):
                if user not in inside:
                    user.replace_input_with(place, new)
            for place, output in enumerate(graph.outputs):
                if output is old:
                    graph.outputs[place] = new
