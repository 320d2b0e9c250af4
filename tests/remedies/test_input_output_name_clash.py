"""Outputs named like inputs, and inputs returned as they are."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import onnxruntime
import pytest
import torch
from harness import EXPORT, TRACE, assert_parity, export, make_case, operators
from torch import nn

from fairway.convert.ladder.route import Route
from fairway.convert.remedies.contract import Case, Match, Refusal
from fairway.convert.remedies.input_output_name_clash import REMEDY, make_separating_pass, make_unique_names

DIMS = [{0: "batch", 1: "time"}, {0: "batch", 1: "other"}]


class Returned(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x, y + 1, y


def case_of(route: Route, outputs: tuple[str, ...] = ("x", "y", "z")) -> Case:
    return make_case(Returned(), (torch.randn(2, 3), torch.randn(2, 5)), route, ("x", "y"), outputs)


def names(values: object) -> list[str | None]:
    return [value.name for value in values]  # type: ignore[attr-defined]


def export_by_torch(path: Path, dynamo: bool) -> None:
    args, names = (torch.randn(2, 3), torch.randn(2, 5)), ["x", "y", "z"]
    torch.onnx.export(Returned(), args, path, dynamo=dynamo, input_names=names[:2], output_names=names, verbose=False)


def test_torchs_dynamo_exporter_writes_a_file_that_does_not_load(tmp_path: Path) -> None:
    export_by_torch(tmp_path / "a.onnx", dynamo=True)
    with pytest.raises(Exception, match="Duplicate definition of name"):
        onnxruntime.InferenceSession(tmp_path / "a.onnx")


def test_torchs_tracer_renames_the_inputs(tmp_path: Path) -> None:
    export_by_torch(tmp_path / "a.onnx", dynamo=False)
    assert names(ir.load(tmp_path / "a.onnx").graph.inputs) == ["x.1", "y.1"]


@pytest.mark.parametrize("route", [EXPORT, TRACE], ids=lambda r: r.name)
def test_without_it_the_outputs_have_makeshift_names(route: Route) -> None:
    graph = export(case_of(route), DIMS).graph
    assert names(graph.inputs) == ["x", "y"]
    assert names(graph.outputs) == ["x_of_the_file", "y_of_the_file", "z"]


@pytest.mark.parametrize("route", [EXPORT, TRACE], ids=lambda r: r.name)
def test_names_differ_and_values_agree_with_it(route: Route) -> None:
    case = case_of(route)
    exported = export(case, DIMS, REMEDY)
    assert names(exported.graph.inputs) == ["x", "y"]
    assert names(exported.graph.outputs) == ["x_out", "y_out", "z"] == list(case.output_names)
    assert_parity(exported, Returned(), (torch.randn(3, 4), torch.randn(3, 6)), atol=0)


def test_the_note_lists_the_renaming() -> None:
    answer = REMEDY.detect(case_of(EXPORT))
    assert isinstance(answer, Match)
    assert answer.note == "outputs renamed: x → x_out, y → y_out"


def test_a_new_name_is_not_one_that_is_taken() -> None:
    assert make_unique_names(["x", "x_out"], ["x", "x_out2"]) == ("x_out3", "x_out2")


def test_an_input_that_is_an_output_gets_an_identity_node() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n"]))
    model = ir.Model(ir.Graph([value], [value, value], nodes=[], opset_imports={"": 18}), ir_version=10)
    assert make_separating_pass(("x_out", "again"))(model)
    assert names(model.graph.outputs) == ["x_out", "again"]
    assert operators(model) == ["Identity", "Identity"]


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [(("a", "b", "c"), "inputs and outputs have different names"), ((), "the outputs have no names yet")],
)
def test_near_misses_are_refused(outputs: tuple[str, ...], reason: str) -> None:
    assert REMEDY.detect(case_of(EXPORT, outputs)) == Refusal(reason)


def test_applying_it_twice_changes_nothing_more() -> None:
    case = case_of(TRACE)
    once = export(case, DIMS, REMEDY)
    assert REMEDY.detect(case) == Refusal("inputs and outputs have different names")
    assert not make_separating_pass(case.output_names)(once)
    assert case.passes == []
