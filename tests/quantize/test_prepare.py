"""The prepared graph: its units, and the files that are refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, version_converter
from tests.quantize.nets import convnet, floats, mlp, ready, recurrent, save

from fairway.diagnostics.errors import UserError
from fairway.tune.quantize.accuracy import OrtFile
from fairway.tune.quantize.prepare import prepare_graph
from fairway.tune.quantize.schemes import make_variant


def test_a_convolution_is_one_unit_with_the_relu_that_it_alone_feeds(tmp_path: Path) -> None:
    units = {unit.name: unit for unit in prepare_graph(convnet(tmp_path / "net.onnx"), tmp_path).units}
    assert {name: unit.nodes for name, unit in units.items()} == {
        "first": ("first", "relu"),
        "second": ("second",),
        "beside": ("beside",),
        "head": ("head",),
    }
    assert units["second"].weights == 16 * 16 * 9


def test_nothing_is_left_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime's symbolic shapes leave what they stumbled over there, so they are not asked."""

    def asked(*given: object) -> None:
        raise AssertionError("symbolic shapes are inferred")

    monkeypatch.setattr("onnxruntime.tools.symbolic_shape_infer.SymbolicShapeInference.infer_shapes", asked)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    context, _ = ready(recurrent(tmp_path / "net.onnx"), tmp_path / "work", time=(2, 9), batch=(1, 3))
    make_variant("int8-static", context)
    make_variant("int8-dynamic", context)
    assert list(here.iterdir()) == []


def test_a_recurrent_node_is_a_unit(tmp_path: Path) -> None:
    units = prepare_graph(recurrent(tmp_path / "net.onnx"), tmp_path).units
    assert [unit.operator for unit in units] == ["GRU", "MatMul"]


def test_a_product_of_two_activations_is_no_unit(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"], "square")]
    path = save(tmp_path / "net.onnx", nodes, {}, [floats("x", 8, 8)], [floats("y", 8, 8)])
    assert prepare_graph(path, tmp_path).units == ()


def test_a_quantized_file_is_refused(tmp_path: Path) -> None:
    context, _ = ready(mlp(tmp_path / "net.onnx"), tmp_path / "work")
    for scheme in ("int8-static", "int8-dynamic", "int4-weights"):
        made = make_variant(scheme, context)
        with pytest.raises(UserError) as raised:
            prepare_graph(made.path, tmp_path)
        assert raised.value.finding.code == "FW701", scheme


def test_a_low_opset_is_converted_and_the_numbers_stay(tmp_path: Path) -> None:
    path = mlp(tmp_path / "net.onnx", opset=11)
    context, samples = ready(path, tmp_path / "work")
    assert (context.prepared.raised_from, context.prepared.opset) == (11, 17)
    for sample in samples.held_back:
        raised, own = OrtFile(context.prepared.path)(sample)[0], OrtFile(path)(sample)[0]
        np.testing.assert_allclose(raised, own, rtol=1e-5, atol=1e-5)
    assert make_variant("int8-static", context).quantized


def test_a_low_opset_that_cannot_be_converted_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
        raise RuntimeError("No Adapter From Version 12 for Upsample")

    monkeypatch.setattr(version_converter, "convert_version", failing)
    with pytest.raises(UserError) as raised:
        prepare_graph(mlp(tmp_path / "net.onnx", opset=12), tmp_path)
    assert raised.value.finding.code == "FW704"
    assert raised.value.finding.seen == (
        "net.onnx has opset 12; quantization needs 13, and converting it failed: "
        "No Adapter From Version 12 for Upsample"
    )
