"""onnxscript's rules, looked for only where they can be: the same graph comes out."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnxscript import rewriter
from onnxscript.rewriter.pattern import RewriteRule

from fairway.weights.optimise import quick_matching

NET = """
<ir_version: 10, opset_import: ["" : 20]>
net (float[2] x) => (float[2] y, float[2] z) {
    a = Sqrt(x)
    b = Exp(a)
    c = Relu(b)
    d = Tanh(b)
    y = Neg(c)
    z = Neg(d)
}
"""


def two_ends(op: Any, x: Any) -> Any:
    return op.Relu(x), op.Tanh(x)


def others(op: Any, x: Any) -> Any:
    return op.Abs(x), op.Sign(x)


def rewritten() -> list[str]:
    """The operators of the graph after a rule whose pattern has two ends."""
    model = ir.from_proto(onnx.parser.parse_model(NET))
    rewriter.rewrite(model, [RewriteRule(two_ends, others)])
    return [node.op_type for node in model.graph]


def test_a_pattern_with_two_ends_is_still_found() -> None:
    with quick_matching():
        quick = rewritten()
    assert quick == rewritten() == ["Sqrt", "Exp", "Abs", "Sign", "Neg", "Neg"]


def test_the_graph_is_not_read_at_nodes_that_cannot_be_its_first_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain = ir.Graph.__iter__

    def counted(self: ir.Graph) -> object:
        read.append(1)
        return plain(self)

    monkeypatch.setattr(ir.Graph, "__iter__", counted)
    with quick_matching():
        rewritten()
    quick = len(read)
    rewritten()
    assert len(read) - quick >= quick + 4  # at each node that is no Relu
