"""Runs onnxscript's optimizer without changing the weights.

A tensor that it computes from a weight is in no checkpoint. It merges two weights that happen to be equal, and drops a
bias that happens to be zero; stamped for a third block, that would be wrong. Except for that, these are the passes of
`onnxscript.optimizer.optimize_ir`, in its order (0.7.2). They can go when it has an option to exclude initializers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer, rewriter
from onnxscript.rewriter.pattern import RewriteRule

from fairway.convert.weights.recognize import WeightAddresses
from fairway.torch_internals import first_pattern_output, replace_internal

OPTIMIZER_ROUNDS = 2
MAX_MERGED_ELEMENTS = 1024
"""Equal constants up to this size are merged."""


def optimize_graph(model: ir.Model, known: WeightAddresses) -> None:
    """Optimize the model in place."""

    def should_fold(node: ir.Node) -> bool | None:
        constants = (v.const_value for v in node.inputs if v is not None and v.const_value is not None)
        # A transposed weight is a view and needs no computation.
        return False if node.op_type != "Transpose" and any(map(known.find, constants)) else None

    common.InlinePass()(model)
    for _ in range(OPTIMIZER_ROUNDS):
        optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=should_fold)
        with _hide_weights(model.graph, known):
            rewriter.rewrite(model)
        common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.LiftSubgraphInitializersToMainGraphPass()(model)
    _merge_constants(model.graph, known)
    for final_pass in (common.CommonSubexpressionEliminationPass(), common.OutputFixPass(), common.NameFixPass()):
        final_pass(model)


@contextmanager
def _hide_weights(graph: ir.Graph, known: WeightAddresses) -> Iterator[None]:
    """Within this context, weights have no values, so that no rule depends on them or reads a checkpoint."""
    constants = [(value, value.const_value) for value in graph.initializers.values()]
    weights = [(value, tensor) for value, tensor in constants if tensor is not None and known.find(tensor)]
    for value, _ in weights:
        value.const_value = None
    try:
        yield
    finally:
        for value, tensor in weights:
            value.const_value = tensor


@contextmanager
def match_rules_quickly() -> Iterator[None]:
    """Within this context, onnxscript tries a rule only at nodes that can be the first output of its pattern.

    It normally tries each rule at every node. One rule, whose pattern has two outputs (two slices that make a split),
    reads the whole graph each time. That was most of the time for a graph of six thousand nodes.
    """
    plain = RewriteRule.try_rewrite

    def try_rewrite(self: RewriteRule, model: object, graph: object, node: ir.Node, **options: object) -> object:
        first = first_pattern_output(self).op_identifier()
        if first is not None and first[:2] != (node.domain, node.op_type):
            return None
        return plain(self, model, graph, node, **options)

    with replace_internal("try_rewrite", try_rewrite):
        yield


def _merge_constants(graph: ir.Graph, known: WeightAddresses) -> None:
    """Merge equal constants that are not weights."""
    first: dict[tuple[object, ...], ir.Value] = {}
    for name, value in [*graph.initializers.items()]:
        tensor = value.const_value
        if tensor is None or tensor.size > MAX_MERGED_ELEMENTS or value.is_graph_output() or known.find(tensor):
            continue
        kept = first.setdefault((tensor.dtype, tuple(tensor.shape), tensor.tobytes()), value)
        if kept is not value:
            value.replace_all_uses_with(kept)
            del graph.initializers[name]
