"""Each scheme makes a file that computes nearly the same, and counts the weights that it narrowed."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper
from tests.quantize.nets import convnet, floats, mlp, ready, recurrent, save

from fairway.diagnostics.errors import UserError
from fairway.record.files import hash_file
from fairway.tune.quantize.accuracy import OrtFile
from fairway.tune.quantize.error_metrics import add_scores, score_outputs
from fairway.tune.quantize.schemes import SCHEMES, make_variant

MOST = {"int8-dynamic": 1e-3, "int8-static": 1e-3, "int4-weights": 2e-2, "fp16": 1e-6, "bf16": 1e-4}
"""Of the output's power."""


def test_distinct_schemes_are_distinct_files_that_compute_nearly_the_same(tmp_path: Path) -> None:
    path = mlp(tmp_path / "net.onnx")
    context, samples = ready(path, tmp_path / "work")
    right = OrtFile(path)
    hashes = {}
    for scheme in SCHEMES:
        made = make_variant(scheme, context)
        session = OrtFile(made.path)
        score = add_scores(score_outputs(["y"], right(sample), session(sample)) for sample in samples.held_back)
        assert 0 < score.compute_drop("sqnr") < MOST[scheme], scheme
        assert made.weights >= 3, scheme
        hashes[scheme] = hash_file(made.path)
    assert len(set(hashes.values())) == len(SCHEMES)


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int4-weights"])
def test_a_scheme_that_finds_nothing_is_a_finding(scheme: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "r"], ["y"])]
    path = save(tmp_path / "net.onnx", nodes, {}, [floats("x", 8, 8)], [floats("y", 8, 8)])
    context, _ = ready(path, tmp_path / "work")
    with pytest.raises(UserError) as raised:
        make_variant(scheme, context)
    assert raised.value.finding.code == "FW705"
    assert f"{scheme} found nothing to quantize: the graph has 0 units" in raised.value.finding.seen


def test_convolutions_stay_in_float_where_activations_are_scaled_at_run_time(tmp_path: Path) -> None:
    context, _ = ready(convnet(tmp_path / "net.onnx"), tmp_path / "work")
    made = make_variant("int8-dynamic", context)
    assert ([u.name for u in made.quantized], [u.name for u in made.kept]) == (["head"], ["first", "second", "beside"])
    kinds = [node.op_type for node in onnx.load(made.path).graph.node]
    assert kinds.count("Conv") == 3
    assert "ConvInteger" not in kinds
    assert "MatMulInteger" in kinds


def test_what_is_kept_is_in_float_and_the_rest_is_not(tmp_path: Path) -> None:
    context, _ = ready(mlp(tmp_path / "net.onnx"), tmp_path / "work")
    made = make_variant("int8-static", context, keep=["second"])
    assert [unit.name for unit in made.quantized] == ["first", "third"]
    assert [unit.name for unit in made.kept] == ["second"]
    held = {i.name: i.data_type for i in onnx.load(made.path).graph.initializer if len(i.dims) == 2}
    assert held == {"w0_quantized": 3, "w1": 1, "w2_quantized": 3}


def test_a_residual_is_not_rounded_for_its_neighbors_sake(tmp_path: Path) -> None:
    context, _ = ready(mlp(tmp_path / "net.onnx"), tmp_path / "work")
    nodes = {node.output[0]: node for node in onnx.load(make_variant("int8-static", context).path).graph.node}
    assert list(nodes["y"].input) == ["a2", "x"], "the input itself, though the first layer has it in bytes"


def test_an_output_that_is_read_inside_too_is_not_rounded(tmp_path: Path) -> None:
    path = mlp(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.graph.output.append(floats("r1", "batch", 3, 48))
    onnx.save(model, path)
    context, samples = ready(path, tmp_path / "work")
    made = make_variant("int8-static", context, keep=["first", "second"])
    right, got = OrtFile(path)(samples.typical), OrtFile(made.path)(samples.typical)
    assert (right[1] == got[1]).all()
    assert not (right[0] == got[0]).all()


def test_a_grus_weights_are_bytes_in_the_file(tmp_path: Path) -> None:
    path = recurrent(tmp_path / "net.onnx")
    context, samples = ready(path, tmp_path / "work", time=(2, 9), batch=(1, 3))
    for scheme in ("int8-static", "int8-dynamic"):
        made = make_variant(scheme, context)
        held = {i.name: i.data_type for i in onnx.load(made.path).graph.initializer if len(i.dims) == 3}
        assert held == {"w_quantized": 3, "r_quantized": 3}, scheme
        score = score_outputs(["y"], OrtFile(path)(samples.typical), OrtFile(made.path)(samples.typical))
        assert 0 < score.compute_drop("sqnr") < 1e-3
