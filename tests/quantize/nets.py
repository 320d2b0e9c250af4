"""Small ONNX files made by hand, so that no test has to export first; some have a layer that bytes are bad for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fairway.judge.file_subject import build_file_subject
from fairway.model.cpu import Int8Types
from fairway.model.onnx_file import open_header
from fairway.model.recipe import Overrides
from fairway.model.subject import Subject
from fairway.tune.quantize.calibration import calibrate
from fairway.tune.quantize.prepare import prepare_graph
from fairway.tune.quantize.sample_split import SampleSplit, open_samples
from fairway.tune.quantize.schemes import QuantizeContext

VNNI = Int8Types("uint8", "int8", False, "for tests")
WIDTH = 48
PLACES = 3
"""Three axes, so that no runtime makes one Gemm of a MatMul and an Add."""
OUTLIER = 500.0


def save(
    path: Path,
    nodes: list[Any],
    weights: dict[str, Any],
    inputs: list[Any],
    outputs: list[Any],
    opset: int = 17,
) -> Path:
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def mlp(path: Path, planted: int | None = None, opset: int = 17) -> Path:
    """Three layers with a residual around the second. The planted one is given a channel far larger than the rest."""
    draw = np.random.default_rng(0)
    weights: dict[str, Any] = {}
    for number in range(3):
        weights[f"w{number}"] = (draw.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
        weights[f"b{number}"] = draw.standard_normal(WIDTH).astype(np.float32)
    if planted is not None:
        weights[f"w{planted - 1}"][:, 0] *= OUTLIER
        weights[f"b{planted - 1}"][0] = OUTLIER  # above zero, whatever the draw: a relu follows
        weights[f"w{planted}"][0] /= OUTLIER
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m0"], "first"),
        helper.make_node("Add", ["m0", "b0"], ["a0"]),
        helper.make_node("Relu", ["a0"], ["r0"]),
        helper.make_node("MatMul", ["r0", "w1"], ["m1"], "second"),
        helper.make_node("Add", ["m1", "b1"], ["a1"]),
        helper.make_node("Relu", ["a1"], ["r1"]),
        helper.make_node("MatMul", ["r1", "w2"], ["m2"], "third"),
        helper.make_node("Add", ["m2", "b2"], ["a2"]),
        helper.make_node("Add", ["a2", "x"], ["y"]),
    ]
    shape = ("batch", PLACES, WIDTH)
    return save(path, nodes, weights, [floats("x", *shape)], [floats("y", *shape)], opset)


def turned(path: Path) -> Path:
    """A value that goes through a transpose into the next layer, and past it as a residual."""
    draw = np.random.default_rng(3)
    weights = {f"w{n}": (draw.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32) for n in range(2)}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m0"], "first"),
        helper.make_node("Tanh", ["m0"], ["t"]),
        helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["u", "w1"], ["m1"], "second"),
        helper.make_node("Transpose", ["m1"], ["v"], perm=[1, 0, 2]),
        helper.make_node("Add", ["v", "t"], ["y"]),
    ]
    shape = ("batch", PLACES, WIDTH)
    return save(path, nodes, weights, [floats("x", *shape)], [floats("y", *shape)])


def convnet(path: Path) -> Path:
    """Two convolutions with a relu between, a third beside them, and a Gemm at the end."""
    draw = np.random.default_rng(1)

    def drawn(*shape: int) -> Any:
        return (draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    weights = {
        "c0": drawn(16, 3, 3, 3),
        "d0": drawn(16, 1)[:, 0],
        "c1": drawn(16, 16, 3, 3),
        "d1": drawn(16, 1)[:, 0],
        "c2": drawn(16, 16, 1, 1),
        "g": drawn(10, 16),
        "h": drawn(10, 1)[:, 0],
    }
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "c0", "d0"], ["a"], "first", **pads),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "c1", "d1"], ["b"], "second", **pads),
        helper.make_node("Conv", ["r", "c2"], ["c"], "beside"),
        helper.make_node("Add", ["b", "c"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g", "h"], ["y"], "head", transB=1),
    ]
    return save(path, nodes, weights, [floats("x", "batch", 3, 8, 8)], [floats("y", "batch", 10)])


def recurrent(path: Path) -> Path:
    """A GRU and a layer behind it."""
    draw = np.random.default_rng(2)
    hidden = 24
    weights = {
        "w": draw.standard_normal((1, 3 * hidden, 8)).astype(np.float32) / 3,
        "r": draw.standard_normal((1, 3 * hidden, hidden)).astype(np.float32) / 5,
        "o": draw.standard_normal((hidden, 64)).astype(np.float32) / 5,
        "one": np.array([1], dtype=np.int64),
    }
    nodes = [
        helper.make_node("GRU", ["x", "w", "r"], ["steps"], "gru", hidden_size=hidden, linear_before_reset=1),
        helper.make_node("Squeeze", ["steps", "one"], ["flat"]),
        helper.make_node("MatMul", ["flat", "o"], ["y"], "head"),
    ]
    return save(path, nodes, weights, [floats("x", "time", "batch", 8)], [floats("y", "time", "batch", 64)])


def of_file(path: Path, **bounds: tuple[int, int]) -> Subject:
    return build_file_subject(open_header(path), None, Overrides(bounds=bounds))


def ready(
    path: Path, folder: Path, arithmetic: Int8Types = VNNI, **bounds: tuple[int, int]
) -> tuple[QuantizeContext, SampleSplit]:
    """Prepared and calibrated."""
    folder.mkdir(exist_ok=True)
    prepared = prepare_graph(path, folder)
    samples = open_samples(of_file(path, **bounds), None, 16)
    ranges = calibrate(prepared, samples.read_calibration(), "minmax", folder)
    return QuantizeContext(prepared, arithmetic, ranges, True, folder), samples
