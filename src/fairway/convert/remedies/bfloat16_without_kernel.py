"""Operators on bfloat16 run in float32, and round their results to bfloat16, as PyTorch does on the CPU.

onnxruntime 1.31 has no CPU kernel for MatMul, Add, Relu and nearly everything else in bfloat16. The file cannot be
loaded, and Conv below opset 22 is not even legal. Each such node gets its inputs cast to float32 and its outputs cast
back, as PyTorch's own kernels do.

Never refuses, because the graph does not exist yet when remedies are chosen. Can be removed when the runtime has the
kernels.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from fairway.convert.remedies.contract import Case, Match, Refusal, Remedy, add_pass
from fairway.diagnostics import Code

HALF, WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT
BFLOAT16_KERNELS = {"Cast", "Constant", "Gather", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze"}
"""Operators that exporters write and that onnxruntime 1.31 runs in bfloat16 on the CPU."""


def widen(model: ir.Model) -> bool:
    """Put casts around every node that has no kernel, and return whether there was one."""
    if not any(value.dtype == HALF for value in _list_values(model)):
        return False
    if any(value.dtype is None for node in model.graph.all_nodes() for value in node.outputs):
        ShapeInferencePass(check_type=False, data_prop=False)(model)
    nodes = [node for node in model.graph.all_nodes() if _lacks_kernel(node)]
    for node in nodes:
        _widen(node)
    return bool(nodes)


def _list_values(model: ir.Model) -> list[ir.Value]:
    made = [value for node in model.graph.all_nodes() for value in node.outputs]
    return [*model.graph.inputs, *model.graph.initializers.values(), *made]


def _lacks_kernel(node: ir.Node) -> bool:
    if node.domain or node.op_type in BFLOAT16_KERNELS:
        return False
    if any(value.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for value in node.attributes.values()):
        return False  # the nodes inside are in the list too
    return any(value is not None and value.dtype == HALF for value in (*node.inputs, *node.outputs))


def _widen(node: ir.Node) -> None:
    for place, value in enumerate(node.inputs):
        if value is not None and value.dtype == HALF:
            cast = ir.node("Cast", [value], {"to": WIDE})
            cast.outputs[0].dtype, cast.outputs[0].shape = WIDE, value.shape
            _get_graph(node).insert_before(node, cast)
            node.replace_input_with(place, cast.outputs[0])
    for value in node.outputs:
        if value.dtype == HALF:
            cast = ir.node("Cast", [value], {"to": HALF})
            back = cast.outputs[0]
            back.dtype, back.shape = HALF, value.shape
            value.dtype = WIDE
            _replace_uses(value, back, cast)
            _get_graph(node).insert_after(node, cast)


def _replace_uses(value: ir.Value, by: ir.Value, cast: ir.Node) -> None:
    for user, place in tuple(value.uses()):
        if user is not cast:
            user.replace_input_with(place, by)
    graph = _get_graph(value.producer())
    for place, output in enumerate(graph.outputs):
        if output is value:
            by.name, value.name = value.name, f"{value.name}_in_float32"
            graph.outputs[place] = by


def _get_graph(node: ir.Node | None) -> ir.Graph:
    assert node is not None
    assert isinstance(node.graph, ir.Graph)
    return node.graph


def detect(case: Case) -> Match | Refusal:
    return Match("operators on bfloat16 computed in float32 and rounded")


def apply(case: Case, match: Match) -> AbstractContextManager[None]:
    return add_pass(case, widen)


REMEDY = Remedy(
    name="bfloat16_without_kernel",
    cures=Code.BFLOAT16_WITHOUT_KERNEL,
    title="Computes bfloat16 operators in float32",
    stage="graph",
    affected={"onnxruntime": "<=1.31.1"},
    upstream=(),
    safety="PyTorch's CPU kernels compute bfloat16 in float32 and round the result, which is what the casts do.",
    detect=detect,
    apply=apply,
    order=30,
)
