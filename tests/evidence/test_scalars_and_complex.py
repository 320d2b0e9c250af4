"""Inputs without dims reach the file without dims, and complex inputs are declared and fed as pairs of floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

import fairway
from fairway.deploy.serve.canary_check import check_canary
from fairway.deploy.serve.signature import read_signature
from fairway.judge.runtimes.ort import OrtSession
from fairway.judge.runtimes.second import ENGINES, list_installed_engines
from fairway.model import canary
from fairway.model.onnx_file import open_header
from fairway.model.spec import parse_input
from fairway.record.files import get_record_path
from fairway.record.reader import read_record
from serve.test_parts import runner, through

SHAPE_OF = """<ir_version: 10, opset_import: ["" : 20]>
g (float x) => (int64[rank] y) {
  y = Shape(x)
}"""


@pytest.mark.parametrize("engine", ["onnxruntime", *list_installed_engines()])
def test_an_input_without_dims_is_fed_without_dims(tmp_path: Path, engine: str) -> None:
    path = str(tmp_path / "shape.onnx")
    model = ir.from_onnx_text(SHAPE_OF)
    if engine != "openvino":  # which must know the rank, and refuses another one
        model.graph.inputs[0].shape = None
    ir.save(model, path)
    run = OrtSession(path).run if engine == "onnxruntime" else ENGINES[engine](path)
    (shape,) = run(["x"], [torch.tensor(2.0)])
    assert shape.tolist() == []


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, by: torch.Tensor) -> Any:
        return x * by, by * 2


def test_a_model_with_an_input_without_dims_is_verified_and_served(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    result = fairway.export(Scaled(), ["x: float32[batch, 3]", "by: float32[]"], path, bounds={"batch": (1, 4)})
    assert result.verdict == "verified", result.findings
    assert [list(t.shape.dims if t.shape else ()) for t in ir.load(path).graph.inputs][1] == []
    stored = read_record(get_record_path(path))
    assert stored.evidence.canary.none is None
    found = through(check_canary(runner(path), read_signature(open_header(path), stored, False), stored, None))
    assert found.why_not is not None  # each request has another `by`, so requests are not merged


def test_the_canary_draws_inputs_without_dims() -> None:
    lines = ["x: float32[]", "n: int64[] < 5", "b: bool[]", "r: float32[] in 0..1"]
    drawn = canary.draw_canary_inputs([parse_input(line) for line in lines], {})
    assert {name: (array.shape, array.dtype.name) for name, array in drawn.items()} == {
        "x": ((), "float32"),
        "n": ((), "int64"),
        "b": ((), "bool"),
        "r": ((), "float32"),
    }


class Power(torch.nn.Module):
    def forward(self, z: torch.Tensor) -> Any:
        return (z * z).real, z * 2


BOUNDS = {"batch": (1, 4)}


@pytest.mark.parametrize("form", ["lines", "examples"])
def test_a_complex_input_is_declared_as_pairs_and_verified(tmp_path: Path, form: str) -> None:
    path = tmp_path / "out.onnx"
    generator = torch.Generator().manual_seed(0)
    if form == "lines":
        result = fairway.export(Power(), ["z: complex64[batch, 5]"], path, bounds=BOUNDS)
    else:
        example = torch.randn(2, 5, dtype=torch.complex64, generator=generator)
        result = fairway.export(Power(), (example,), path, dims={"z": "batch 5"}, bounds=BOUNDS)
    assert result.verdict == "verified", result.findings
    (taken,) = onnx.load(path).graph.input
    tensor = taken.type.tensor_type
    assert tensor.elem_type == onnx.TensorProto.FLOAT
    assert [size.dim_param or size.dim_value for size in tensor.shape.dim] == ["batch", 5, 2]
    given = torch.randn(3, 5, dtype=torch.complex64, generator=generator)
    real, doubled = OrtSession(path).run(["z"], [given])
    np.testing.assert_allclose(real, (given * given).real.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(doubled, torch.view_as_real(given * 2).numpy(), rtol=1e-6)
    again = fairway.verify(path, Power(), ["z: complex64[batch, 5]"], bounds=BOUNDS, level="quick")
    assert again.verdict == "verified", again.findings


def test_a_complex_input_is_served_as_pairs(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    fairway.export(Power(), ["z: complex64[batch, 5]"], path, bounds=BOUNDS, level="quick")
    stored = read_record(get_record_path(path))
    signature = read_signature(open_header(path), stored, False)
    assert str(signature.inputs[0]) == "z: float32[batch, 5, 2]"
    assert through(check_canary(runner(path), signature, stored, None)).limit == 4
