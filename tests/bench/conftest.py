from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

WIDE = 64


Dims = tuple[str | int | None, ...]


def perceptron(path: Path, layers: int = 2, name: str = "x", dims: Dims = ("batch", WIDE)) -> Path:
    """A small file: so many layers of MatMul and Relu, each named after a module."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], name
    for i in range(layers):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.1, (WIDE, WIDE)).astype(np.float32), f"w{i}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"], name=f"/layers.{i}/MatMul"),
            helper.make_node("Relu", [f"m{i}"], [f"r{i}"], name=f"/layers.{i}/act/Relu"),
        ]
        last = f"r{i}"
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, dims)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    return lambda file="net.onnx", **asked: perceptron(tmp_path / file, **asked)
