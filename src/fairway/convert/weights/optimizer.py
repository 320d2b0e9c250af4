"""onnxscript's optimiser, with its hands off the weights.

What it computes from a weight lies in no checkpoint. Two weights that happen to be equal it makes one, and a bias that
happens to be zero it leaves out; stamped for a third block, that would be wrong. Otherwise these are the passes of
`onnxscript.optimizer.optimize_ir`, in its order (0.7.2); they can go when it can be told to leave some initialisers
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer, rewriter
from onnxscript.rewriter.pattern import RewriteRule

from fairway.convert.weights.recognize import WeightAddresses

ROUNDS = 2
SMALL = 1024
"""Elements up to which equal constants are made one."""


def optimise(model: ir.Model, known: WeightAddresses) -> None:
    """In place."""

    def leave(node: ir.Node) -> bool | None:
        held = (v.const_value for v in node.inputs if v is not None and v.const_value is not None)
        # A transposed weight is a view, computed by nobody.
        return False if node.op_type != "Transpose" and any(map(known.find, held)) else None

    common.InlinePass()(model)
    for _ in range(ROUNDS):
        optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=leave)
        with _unread(model.graph, known):
            rewriter.rewrite(model)
        common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.LiftSubgraphInitializersToMainGraphPass()(model)
    _merge_constants(model.graph, known)
    for last in (common.CommonSubexpressionEliminationPass(), common.OutputFixPass(), common.NameFixPass()):
        last(model)


@contextmanager
def _unread(graph: ir.Graph, known: WeightAddresses) -> Iterator[None]:
    """Within, weights have no values that a rule could go by, and for which it would have to read a checkpoint."""
    constants = [(value, value.const_value) for value in graph.initializers.values()]
    held = [(value, tensor) for value, tensor in constants if tensor is not None and known.find(tensor)]
    for value, _ in held:
        value.const_value = None
    try:
        yield
    finally:
        for value, tensor in held:
            value.const_value = tensor


@contextmanager
def quick_matching() -> Iterator[None]:
    """Within, onnxscript tries a rule only at nodes that can be the first of its pattern's ends.

    It tries each of its rules at every node. One of them, whose pattern has two ends (two slices that make
    a split), reads the whole graph each time: most of the time that a graph of six thousand nodes took.
    """
    plain = RewriteRule.try_rewrite

    def try_rewrite(self: RewriteRule, model: Any, graph: Any, node: ir.Node, **options: Any) -> Any:
        first = self._target_pattern.output_nodes[0].op_identifier()  # private; seen in onnxscript 0.7.2
        if first is not None and first[:2] != (node.domain, node.op_type):
            return None
        return plain(self, model, graph, node, **options)

    with patch.object(RewriteRule, "try_rewrite", try_rewrite):
        yield


def _merge_constants(graph: ir.Graph, known: WeightAddresses) -> None:
    """Equal constants that are no weights become one."""
    first: dict[tuple[object, ...], ir.Value] = {}
    for name, value in [*graph.initializers.items()]:
        tensor = value.const_value
        if tensor is None or tensor.size > SMALL or value.is_graph_output() or known.find(tensor):
            continue
        kept = first.setdefault((tensor.dtype, tuple(tensor.shape), tensor.tobytes()), value)
        if kept is not value:
            value.replace_all_uses_with(kept)
            del graph.initializers[name]
