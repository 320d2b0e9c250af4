"""onnxscript's optimizer leaves the weights alone and otherwise gives the same result, and its rules are looked for
only where they can be: the same graph comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from onnxscript import rewriter
from onnxscript.rewriter.pattern import RewriteRule
from torch import nn

import fairway
from fairway.convert.weights.optimizer import match_rules_quickly

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
    with match_rules_quickly():
        quick = rewritten()
    assert quick == rewritten() == ["Sqrt", "Exp", "Abs", "Sign", "Neg", "Neg"]


def test_the_graph_is_read_only_where_a_pattern_can_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain = ir.Graph.__iter__

    def counted(self: ir.Graph) -> object:
        read.append(1)
        return plain(self)

    monkeypatch.setattr(ir.Graph, "__iter__", counted)
    with match_rules_quickly():
        rewritten()
    quick = len(read)
    rewritten()
    assert len(read) - quick >= quick + 4  # at each node except Relu


def test_a_rule_is_tried_at_nodes_that_its_pattern_can_end_with(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    plain = RewriteRule.match

    def noted(self: RewriteRule, model: ir.Model, graph: ir.Graph, node: ir.Node, **options: Any) -> Any:
        tried.append(node.op_type)
        return plain(self, model, graph, node, **options)

    monkeypatch.setattr(RewriteRule, "match", noted)
    with match_rules_quickly():
        rewritten()
    assert tried == ["Relu"]


class Sorted(nn.Module):
    """Splits rows at a place that is known by value only, as mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = (x[:, 0] > 0).long()
        sizes = nn.functional.one_hot(chosen, 2).sum(0).tolist()
        parts = x[chosen.argsort()].split(sizes)
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])


def test_what_needs_shapes_to_be_folded_is_folded_where_weights_lie_outside(tmp_path: Path) -> None:
    asked = {"bounds": {"batch": (2, 9)}, "level": "quick", "weights": "copy"}
    result = fairway.export(Sorted().eval(), ["x: float32[batch, 4]"], tmp_path / "out.onnx", **asked)
    assert [rung.verdict for rung in result.record.ladder] == ["verified"]
    kinds = {node.op_type for node in onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.node}
    assert "Split" in kinds
    assert "SplitToSequence" not in kinds
