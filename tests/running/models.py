"""Files to run: a moving sum that loses samples, a recurrence with its state outside, a mean of each window, rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def _save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any]) -> Path:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def value(name: str, *shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def moving_sum(folder: Path) -> Path:
    """y[t] = x[t] + x[t+1] + x[t+2]: two samples are lost."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["xt"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["xt", "w"], ["yt"], group=2),
        helper.make_node("Transpose", ["yt"], ["y"], perm=[0, 2, 1]),
    ]
    weights = {"w": np.ones((2, 1, 3), np.float32)}
    return _save(folder / "sum.onnx", nodes, [value("x", "batch", "time", 2)], [value("y", "batch", "out", 2)], weights)


def wavering(folder: Path) -> Path:
    """y = x - mean of the window: windows disagree where they overlap."""
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["y"]),
        helper.make_node("Squeeze", ["m", "axes"], ["mean"]),
    ]
    outputs = [value("y", "batch", "time", 1), value("mean", "batch", 1)]
    axes = {"axes": np.array([1], np.int64)}
    return _save(folder / "waver.onnx", nodes, [value("x", "batch", "time", 1)], outputs, axes)


def recurrent(folder: Path, hidden: int = 8) -> Path:
    """A GRU over `x`, its state going in as h0 and coming out as h1."""
    draw = np.random.default_rng(0)
    weights = {
        "w": draw.standard_normal((1, 3 * hidden, 2), dtype=np.float32),
        "r": draw.standard_normal((1, 3 * hidden, hidden), dtype=np.float32) * 0.3,
        "b": draw.standard_normal((1, 6 * hidden), dtype=np.float32),
        "one": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["xt"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["xt", "w", "r", "b", "", "h0"], ["yt", "h1"], hidden_size=hidden),
        helper.make_node("Squeeze", ["yt", "one"], ["ys"]),
        helper.make_node("Transpose", ["ys"], ["y"], perm=[1, 0, 2]),
    ]
    inputs = [value("x", "batch", "time", 2), value("h0", 1, "batch", hidden)]
    outputs = [value("y", "batch", "time", hidden), value("h1", 1, "batch", hidden)]
    return _save(folder / "gru.onnx", nodes, inputs, outputs, weights)


def row_wise(folder: Path) -> Path:
    """y = sum of a row of whole numbers; only the batch varies."""
    nodes = [helper.make_node("ReduceSum", ["ids", "axes"], ["y"], keepdims=0)]
    inputs = [value("ids", "batch", 3, kind=TensorProto.INT64)]
    outputs = [value("y", "batch", kind=TensorProto.INT64)]
    return _save(folder / "rows.onnx", nodes, inputs, outputs, {"axes": np.array([1], np.int64)})
