"""Declared shapes of outputs and inner values."""

from __future__ import annotations

import onnx_ir as ir
import torch
from harness import assert_parity, export, make_case, operators
from torch import nn

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Match, Refusal
from fairway.convert.remedies.output_shape_fixed import REMEDY, release_fixed_dims

BOTH = [{0: "batch", 1: "time"}]


def recurrent(*remedies: object) -> tuple[ir.Model, nn.Module]:
    """nn.GRU under Dim.AUTO: the nodes compute any length, the declared shapes say 5."""
    torch.manual_seed(0)
    model = nn.GRU(3, 4, batch_first=True).eval()
    case = make_case(model, (torch.randn(2, 5, 3),), Route("export", "auto"))
    return export(case, BOTH, *remedies), model  # type: ignore[arg-type]


def shapes(model: ir.Model) -> list[str]:
    return [str(value.shape) for value in model.graph.outputs]


def built(declared: list[int | str | None], *nodes: ir.Node) -> ir.Model:
    """A graph x → nodes, whose last value is the output, declared as the test says."""
    output = nodes[-1].outputs[0]
    output.shape, output.dtype, output.name = ir.Shape(declared), ir.DataType.FLOAT, "y"
    graph = ir.Graph([nodes[0].inputs[0]], [output], nodes=nodes, opset_imports={"": 18}, name="built")
    return ir.Model(graph, ir_version=10)


def x() -> ir.Value:
    return ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["batch", 6]))


def test_the_length_is_declared_fixed_without_it() -> None:
    exported, model = recurrent()
    assert shapes(exported)[0].split(",")[1] == "5"
    assert_parity(exported, model, (torch.randn(3, 7, 3),), atol=1e-5)


def test_the_length_is_declared_open_with_it_and_the_nodes_stay() -> None:
    exported, model = recurrent(REMEDY)
    assert shapes(exported)[0].split(",")[1] == "time"
    assert "5" not in {str(d) for node in exported.graph for v in node.outputs for d in v.shape or ()}
    assert operators(exported) == operators(recurrent()[0])
    assert_parity(exported, model, (torch.randn(3, 7, 3),), (torch.randn(1, 2, 3),), atol=1e-5)


def test_a_dim_that_is_fixed_stays_and_a_wrong_number_is_corrected() -> None:
    relu = ir.node("Relu", [x()])
    model = built([2, 6], relu)
    assert release_fixed_dims(model)
    assert shapes(model) == ["[batch,6]"]
    relu = ir.node("Relu", [x()])
    model = built(["batch", 7], relu)
    assert release_fixed_dims(model)
    assert shapes(model) == ["[batch,6]"]


def test_a_dim_made_of_a_varying_one_loses_its_number() -> None:
    value = x()
    model = built([4, 6], ir.node("Concat", [value, value], {"axis": 0}))
    assert release_fixed_dims(model)
    assert shapes(model) == ["[None,6]"]


def test_an_output_that_cannot_be_inferred_is_not_claimed_to_be_fixed() -> None:
    model = built([2, 3], ir.node("Unknown", [x()], domain="somewhere.else"))
    model.graph.opset_imports["somewhere.else"] = 1
    assert release_fixed_dims(model)
    assert shapes(model) == ["[None,None]"]


def test_inputs_without_dims_are_refused() -> None:
    answer = REMEDY.detect(make_case(nn.Identity(), (torch.tensor(1.0),)))
    assert answer == Refusal("no input has a dim that could vary")
    assert isinstance(REMEDY.detect(make_case(nn.Identity(), (torch.ones(2),))), Match)


def test_applying_it_twice_changes_nothing_more_and_leaves_nothing_behind() -> None:
    exported, _ = recurrent(REMEDY)
    before = shapes(exported)
    assert not release_fixed_dims(exported)
    assert shapes(exported) == before
    case = make_case(nn.Identity(), (torch.ones(2),))
    with REMEDY.apply(case, Match("")), REMEDY.apply(case, Match("")):
        assert case.passes == [release_fixed_dims] * 2
    assert case.passes == []
