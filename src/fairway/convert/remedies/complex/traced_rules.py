"""Nodes of a captured program with complex values, and rules on their parts as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from fairway.convert.remedies.complex.complex_fourier import narrow_parts
from fairway.convert.remedies.complex.complex_parts import Parts, RuleValue, take_parts
from fairway.torch_internals import tree_flatten


def is_complex_node(node: Node) -> bool:
    values = node.meta.get("val")
    items = values if isinstance(values, list | tuple) else (values,)
    return any(isinstance(item, torch.Tensor) and item.is_complex() for item in items)


def trace_rule(compute: Callable[..., RuleValue], values: Sequence[RuleValue]) -> tuple[Graph, RuleValue]:
    """Return a graph of the rule's computation, and the structure of its result."""
    structure: list[RuleValue] = []

    def flat(*given: RuleValue) -> list[RuleValue]:
        result = compute(*given)
        if result is NotImplemented:
            raise NotImplementedError
        leaves, spec = tree_flatten(result)
        structure.append(spec)
        return leaves

    with torch.no_grad():
        return make_fx(flat)(*values).graph, structure[-1]


def compute_wide(graph: Graph, node: Node, parts: dict[Node, RuleValue]) -> bool:
    """Let a transform that is left whole be computed in float64, as the others are."""
    narrow = [item for item in node.all_input_nodes if item.meta["val"].dtype == torch.float32]
    if not is_complex_node(node) or not narrow:
        return False
    with graph.inserting_before(node):
        for item in narrow:
            widened, _ = trace_rule(lambda value: value.double(), [item.meta["val"]])
            source = next(n for n in widened.nodes if n.op == "placeholder")
            copied: RuleValue = graph.graph_copy(widened, {source: item})
            node.replace_input_with(item, copied[0])
    node.meta["val"] = node.meta["val"].to(torch.complex128)
    traced, _ = trace_rule(lambda value: narrow_parts(take_parts(value), torch.float32), [node.meta["val"]])
    source = next(n for n in traced.nodes if n.op == "placeholder")
    with graph.inserting_before(node.next):
        made: RuleValue = graph.graph_copy(traced, {source: node})
    parts[node] = Parts(*made)
    return True
