"""Copies the last captured block of a run for each equal block that was removed.

This block and the one before must have the same nodes in the same order. Each input must be a value of the same block,
a weight of the same name, the same value for both, or an output of the block before. The first block may compute more,
which all share. If that does not hold, the run is refused, and the difference is reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import onnx_ir as ir
import torch

from fairway.convert.blocks.repeats import Repeat, ShortenedModel
from fairway.convert.weights.recognize import KnownWeight, WeightAddresses, make_constant

SCOPES_KEY = "pkg.torch.onnx.name_scopes"
WRAPPER_PREFIX = "model."
"""The prefix that the wrapper around the user's model adds to every path."""
MAX_COMPARED_ELEMENTS = 1024
"""Constants up to this size are compared by value."""


class BlocksDiffer(Exception):
    """Two blocks that look equal have different graphs, or one of them cannot be separated from its graph."""


SourceKind = Literal["inner", "weight", "shared", "handed on", "none"]


@dataclass(frozen=True)
class InputSource:
    """The source of one input of a block's node."""

    kind: SourceKind
    value: ir.Value | None = None
    place: tuple[int, int] = (0, 0)
    """For `inner` and `handed on`: the index of the node in its block, and of the node's output."""
    known: KnownWeight | None = None


@dataclass
class Block:
    """One block's nodes in the graph."""

    nodes: list[ir.Node] = field(default_factory=list)

    def find_places(self) -> dict[ir.Value, tuple[int, int]]:
        """Return the index of each value's node, and of the value among the node's outputs."""
        return {v: (i, k) for i, node in enumerate(self.nodes) for k, v in enumerate(node.outputs)}


def stamp_blocks(model: ir.Model, cut: ShortenedModel, weights: WeightAddresses) -> None:
    """Put back every block that was removed from the model before it was captured."""
    for repeat in cut.repeats:
        _stamp_repeat(model.graph, repeat, cut.removed, weights)


def _stamp_repeat(
    graph: ir.Graph, repeat: Repeat, removed: Mapping[str, torch.nn.Module], weights: WeightAddresses
) -> None:
    scopes = _read_scopes(graph)
    before, pattern = (_find_block(scopes, repeat.block(repeat.kept - back)) for back in (2, 1))
    pair = BlockPair(before, pattern, repeat, weights)
    stamper = BlockStamper(graph, pair)
    _refuse_outside_readers(pair)
    last, inside = pattern, {*pattern.nodes}
    for number in range(repeat.kept, repeat.count):
        tensors = dict(_list_tensors(removed[repeat.block(number)]))
        made = stamper.copy_block(number, last, tensors)
        graph.insert_after(last.nodes[-1], made.nodes)
        inside.update(made.nodes)
        last = made
    _redirect_readers(graph, pattern, last, inside)


def _list_tensors(block: torch.nn.Module) -> Sequence[tuple[str, torch.Tensor]]:
    return [*block.named_parameters(), *block.named_buffers()]


def _read_scopes(graph: ir.Graph) -> dict[ir.Node, tuple[str, ...]]:
    """Return the modules that each node belongs to. A node without this mark, made by a pass, belongs to its reader."""
    scopes: dict[ir.Node, tuple[str, ...]] = {}
    for node in reversed(graph):
        text = node.metadata_props.get(SCOPES_KEY)
        if text is not None:
            scopes[node] = tuple(ast.literal_eval(text))
            continue
        readers = [scopes.get(user, ()) for value in node.outputs for user, _ in value.uses()]
        scopes[node] = next((scope for scope in readers if scope), ())
    return dict(reversed([*scopes.items()]))


def _find_block(scopes: Mapping[ir.Node, tuple[str, ...]], path: str) -> Block:
    nodes = [node for node, scope in scopes.items() if WRAPPER_PREFIX + path in scope]
    if not nodes:
        raise BlocksDiffer(f"no node of the graph is marked as part of {path}")
    for node in nodes:
        if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
            raise BlocksDiffer(f"{path} has a {node.op_type} node with a subgraph")
    return Block(nodes)


class BlockPair:
    """The block that is copied and the one before it, with the pairs of corresponding values found so far."""

    def __init__(self, before: Block, pattern: Block, repeat: Repeat, weights: WeightAddresses) -> None:
        self.repeat, self.weights = repeat, weights
        self.before, self.pattern = before, pattern
        self.places = pattern.find_places()
        self.owned = before.find_places()
        self.twins: dict[ir.Value, ir.Value] = {}

    def match(self) -> list[list[InputSource]]:
        """Return the sources of the inputs of each node of the pattern; refuse nodes without a twin."""
        numbers = self.repeat.kept - 2, self.repeat.kept - 1
        names = [self.repeat.block(number) for number in numbers]
        spare = len(self.before.nodes) - len(self.pattern.nodes)
        if spare < 0 or (spare and numbers[0] > 0):
            raise BlocksDiffer(
                f"{names[0]} has {len(self.before.nodes)} nodes, {names[1]} has {len(self.pattern.nodes)}"
            )
        matches = []
        rest = iter(self.before.nodes)
        for node in self.pattern.nodes:
            while True:
                twin = next(rest)
                try:
                    if not _is_same_operation(twin, node):
                        raise BlocksDiffer(
                            f"{twin.op_type} {twin.name} of {names[0]} and {node.name} of {names[1]} differ"
                        )
                    matches.append(
                        [self._find_source(*both, node) for both in zip(twin.inputs, node.inputs, strict=True)]
                    )
                    break
                except BlocksDiffer:
                    spare -= 1
                    if spare < 0:
                        raise
            self.twins.update(zip(twin.outputs, node.outputs, strict=True))
        return [[self._settle_source(source) for source in sources] for sources in matches]

    def _find_source(self, twin: ir.Value | None, value: ir.Value | None, node: ir.Node) -> InputSource:
        """Return the source of an input of the pattern, given the twin's input."""
        if twin is None or value is None:
            if twin is not value:
                raise BlocksDiffer(f"an input of {node.op_type} {node.name} is missing in one of the blocks")
            return InputSource("none")
        if value in self.places:
            if self.twins.get(twin) is not value:
                raise BlocksDiffer(f"{node.op_type} {node.name} reads another value inside its block")
            return InputSource("inner", place=self.places[value])
        if twin is value:
            return InputSource("shared", value)
        if value in self.owned and twin not in self.owned:
            return InputSource("handed on", value)
        if twin.const_value is not None and value.const_value is not None:
            known = _find_common_weight(twin.const_value, value.const_value, self.repeat, self.weights)
            if known is not None:
                return InputSource("weight", value, known=known)
            if _is_same_value(twin.const_value, value.const_value):
                return InputSource("shared", value)
        raise BlocksDiffer(
            f"{node.op_type} {node.name} reads {value.name}, and its twin {twin.name}; "
            "it is not known what later blocks read"
        )

    def _settle_source(self, source: InputSource) -> InputSource:
        """Complete a source: every block makes the values that it passes on, and only the first makes shared values."""
        value = source.value
        if value is None or value not in self.owned or (source.kind == "shared" and value not in self.twins):
            return source
        if source.kind == "shared" or value not in self.twins:
            raise BlocksDiffer(f"it is not known if {value.name} is shared by all blocks or made by each")
        return replace(source, place=self.places[self.twins[value]])


def _is_same_operation(node: ir.Node, other: ir.Node) -> bool:
    kind = (node.op_type, node.domain, node.overload, len(node.inputs), len(node.outputs))
    if kind != (other.op_type, other.domain, other.overload, len(other.inputs), len(other.outputs)):
        return False
    if node.attributes.keys() != other.attributes.keys():
        return False
    return all(_is_same_value(a.value, other.attributes[key].value) for key, a in node.attributes.items())


def _is_same_value(value: object, other: object) -> bool:
    if isinstance(value, ir.TensorProtocol) and isinstance(other, ir.TensorProtocol):
        same = value.dtype == other.dtype and tuple(value.shape) == tuple(other.shape)
        return same and value.size <= MAX_COMPARED_ELEMENTS and np.array_equal(value.numpy(), other.numpy())
    return bool(value == other)


def _find_common_weight(
    twin: ir.TensorProtocol, constant: ir.TensorProtocol, repeat: Repeat, weights: WeightAddresses
) -> KnownWeight | None:
    """Return the weight, named as inside the block, if both constants are the same view of their block's weight."""
    a, b = weights.find(twin), weights.find(constant)
    if a is None or b is None:
        return None
    inside = [k.name.removeprefix(f"{repeat.block(repeat.kept - back)}.") for k, back in ((a, 2), (b, 1))]
    same = inside[0] == inside[1] != a.name and inside[1] != b.name
    if not same or (a.shape, a.strides, a.offset) != (b.shape, b.strides, b.offset):
        return None
    return KnownWeight(inside[1], b.shape, b.strides, b.offset)


def _refuse_outside_readers(pair: BlockPair) -> None:
    """Refuse a run if a node outside reads a value that every block makes: it may collect the values of all blocks."""
    inside = {*pair.before.nodes, *pair.pattern.nodes}
    for value in pair.twins:
        outside = [user for user, _ in value.uses() if user not in inside]
        if outside or value.is_graph_output():
            reader = f"{outside[0].op_type} {outside[0].name}" if outside else "an output of the model"
            raise BlocksDiffer(f"{value.name} of a block in the middle is read by {reader}")


class BlockStamper:
    """Copies a captured block for the blocks of a run that were removed."""

    def __init__(self, graph: ir.Graph, pair: BlockPair) -> None:
        self._graph = graph
        self._repeat = pair.repeat
        self._pattern = pair.pattern
        self._sources = pair.match()
        self._sizes = {name for value in graph.inputs for dim in value.shape or () for name in _find_names(dim)}

    def copy_block(self, number: int, last: Block, tensors: Mapping[str, torch.Tensor]) -> Block:
        """Return nodes for the block with this number, which reads the outputs of `last`."""
        made = Block()
        for node, sources in zip(self._pattern.nodes, self._sources, strict=True):
            inputs = [self._find_input(source, number, made, last, tensors) for source in sources]
            made.nodes.append(self._copy_node(node, inputs, number))
        return made

    def _find_input(
        self, source: InputSource, number: int, made: Block, last: Block, tensors: Mapping[str, torch.Tensor]
    ) -> ir.Value | None:
        if source.kind == "inner":
            return made.nodes[source.place[0]].outputs[source.place[1]]
        if source.kind == "handed on":
            return last.nodes[source.place[0]].outputs[source.place[1]]
        if source.kind == "weight":
            return self._provide_weight(source, number, tensors)
        return source.value

    def _copy_node(self, node: ir.Node, inputs: Sequence[ir.Value | None], number: int) -> ir.Node:
        twin = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            [*node.attributes.values()],
            overload=node.overload,
            num_outputs=len(node.outputs),
            name=f"{node.name}_find_block{number}",
        )
        own, pattern = self._repeat.block(number), self._repeat.block(self._repeat.kept - 1)
        for key, text in node.metadata_props.items():
            twin.metadata_props[key] = text.replace(pattern, own)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            # Shapes and types can be changed in place, so each value has its own.
            new.name, new.type = f"{old.name}_find_block{number}", copy(old.type)
            new.shape = self._rename_sizes(old.shape, number)
        return twin

    def _rename_sizes(self, shape: ir.Shape | None, number: int) -> ir.Shape | None:
        """Return a shape in which sizes that depend on a block's values have the block's own names.

        Sizes that follow from the inputs are the same in all blocks. Runtimes reuse the memory of one value for another
        if their sizes have the same name.
        """
        names = self._sizes
        return shape and ir.Shape([dim if _find_names(dim) <= names else f"{dim}_find_block{number}" for dim in shape])

    def _provide_weight(self, source: InputSource, number: int, tensors: Mapping[str, torch.Tensor]) -> ir.Value:
        """Return the block's own weight, which is registered once for all nodes that read it."""
        assert source.known is not None
        assert source.value is not None
        view = source.known
        tensor = tensors[view.name]
        name = f"{WRAPPER_PREFIX}{self._repeat.block(number)}.{view.name}"
        if view.offset != 0 or tensor.shape != view.shape or not tensor.is_contiguous():
            name = f"{name}_{source.value.name}"
        if name in self._graph.initializers:
            return self._graph.initializers[name]
        value = ir.Value(name=name, shape=ir.Shape(view.shape), type=copy(source.value.type))
        value.const_value = make_constant(view.of(tensor), name)
        self._graph.register_initializer(value)
        return value


def _find_names(dim: int | ir.SymbolicDim) -> set[str]:
    """Return the names in a size such as `4*batch` or `Max(1, time)`, without functions."""
    text = dim.value if isinstance(dim, ir.SymbolicDim) else None
    return {*re.findall(r"\b[A-Za-z_]\w*\b(?!\()", str(text))} if text is not None else set()


def _redirect_readers(graph: ir.Graph, pattern: Block, last: Block, inside: set[ir.Node]) -> None:
    """Connect the nodes outside that read the pattern's outputs to the last block's outputs."""
    for old_node, new_node in zip(pattern.nodes, last.nodes, strict=True):
        for old, new in zip(old_node.outputs, new_node.outputs, strict=True):
            for user, place in tuple(old.uses()):
                if user not in inside:
                    user.replace_input_with(place, new)
            for place, output in enumerate(graph.outputs):
                if output is old:
                    graph.outputs[place] = new
