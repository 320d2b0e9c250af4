"""Tiny files with the records that an export would write: rows, a model that mixes rows, ids, a slow one, a killer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from fairway.record.files import get_record_path, hash_file

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Bounds = dict[str, tuple[int, int]]


DRAWN = [{"name": "x", "text": "±120 and magnitudes 1e-6..1e6, not declared", "low": -1.5e6, "high": 1.5e6}]


def save(
    path: Path,
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    weights: dict[str, Any],
    lines: list[str],
    bounds: Bounds,
    example: dict[str, int],
    rows: dict[str, Any] | None = None,
) -> Path:
    """Writes a file and its record. `rows` is what the judge found out about them; independent unless given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    domain = {k: {"low": low, "high": high, "multiple": 1, "declared": True} for k, (low, high) in bounds.items()}
    record = {
        "format": 2,
        "subject": {"name": path.stem, "sha256": "ab" * 32, "inputs": lines, "example": example, "domain": domain},
        "versions": {"torch": "2.13.0"},
        "verdict": "verified",
        "route": "trace",
        "remedies": [],
        "evidence": {"level": "quick", "tested": [{}, {}], "rows": rows or independent(bounds), "values": DRAWN},
        "file": {"name": path.name, "sha256": hash_file(path)},
    }
    get_record_path(path).write_text(json.dumps(record))
    return path


def independent(bounds: Bounds) -> dict[str, Any]:
    """Return the record of rows that were compared at 2 and at the limit."""
    return {"dim": "batch", "independent": True, "sizes": [2, bounds["batch"][1]], "compared": "…", "reason": ""}


def value(name: str, *shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def scaled(path: Path, by: float = 2.0, high: int = 8) -> Path:
    """y = x * by, for a batch of 1..high and a time of 2..20."""
    return save(
        path,
        [helper.make_node("Mul", ["x", "by"], ["y"])],
        [value("x", "batch", "time", 3)],
        [value("y", "batch", "time", 3)],
        {"by": np.float32(by)},
        ["x: float32[batch, time, 3]"],
        {"batch": (1, high), "time": (2, 20)},
        {"batch": 2, "time": 4},
    )


DEPENDENT = {
    "dim": "batch",
    "independent": False,
    "sizes": [2],
    "compared": "…",
    "reason": "y[0, 0]: 1 alone, 2 in a batch of 2",
}


def mixing(path: Path, rows: dict[str, Any] | None = DEPENDENT) -> Path:
    """y = x - mean over the batch: each answer depends on its neighbors."""
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["y"]),
    ]
    return save(
        path,
        nodes,
        [value("x", "batch", 3)],
        [value("y", "batch", 3)],
        {"axes": np.array([0], np.int64)},
        ["x: float32[batch, 3]"],
        {"batch": (1, 8)},
        {"batch": 2},
        rows,
    )


def embedded(path: Path) -> Path:
    """Rows of a table by ids below 10, and a mask beside them."""
    table = np.arange(20, dtype=np.float32).reshape(10, 2)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=FLOAT),
        helper.make_node("Unsqueeze", ["kept", "axes"], ["wide"]),
        helper.make_node("Mul", ["rows", "wide"], ["y"]),
    ]
    inputs = [value("ids", "batch", "seq", kind=INT64), value("mask", "batch", "seq", kind=TensorProto.BOOL)]
    lines = ["ids: int64[batch, seq] < 10", "mask: bool[batch, seq] = keep"]
    weights = {"table": table, "axes": np.array([2], np.int64)}
    bounds = {"batch": (1, 4), "seq": (1, 16)}
    return save(path, nodes, inputs, [value("y", "batch", "seq", 2)], weights, lines, bounds, {"batch": 2, "seq": 3})


def slow(path: Path, size: int = 320, times: int = 12) -> Path:
    """Some milliseconds of matrix products for each sample; y is x in the end, to the bit."""
    weights = {"w": np.eye(size, dtype=np.float32), "one": np.zeros((1, size, size), np.float32)}
    nodes = [helper.make_node("Add", ["x", "one"], ["h0"])]
    nodes += [helper.make_node("MatMul", [f"h{n}", "w"], [f"h{n + 1}"]) for n in range(times)]
    nodes += [helper.make_node("ReduceMax", [f"h{times}", "axes"], ["y"], keepdims=0)]
    weights["axes"] = np.array([1, 2], np.int64)
    return save(
        path,
        nodes,
        [value("x", "batch", 1, 1)],
        [value("y", "batch")],
        weights,
        ["x: float32[batch, 1, 1]"],
        {"batch": (1, 8)},
        {"batch": 2},
    )
