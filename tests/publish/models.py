"""Files to publish, with the records that an export would write; none of them costs an export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fairway.record.files import get_record_path, hash_checkpoint, hash_file


def make_model(folder: Path, seed: int = 0, rows: int = 3, name: str = "net.onnx", external: str | None = None) -> Path:
    """`y = x @ w`, verified for a batch of 1..16; its weights inside, or in the file named."""
    folder.mkdir(parents=True, exist_ok=True)
    weight = np.random.default_rng(seed).standard_normal((rows, 4), dtype=np.float32)
    stored = numpy_helper.from_array(weight, "w")
    if external is not None:
        (folder / external).parent.mkdir(parents=True, exist_ok=True)
        (folder / external).write_bytes(weight.tobytes())
        stored.ClearField("raw_data")
        stored.data_location = TensorProto.EXTERNAL
        for key, value in (("location", external), ("offset", "0"), ("length", str(weight.nbytes))):
            stored.external_data.add(key=key, value=value)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", rows])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, outputs, [stored])
    path = folder / name
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )
    write_record(path, external, rows)
    return path


def write_record(model: Path, external: str | None, rows: int, verdict: str = "verified") -> None:
    record: dict[str, Any] = {
        "format": 2,
        "subject": {
            "name": "net",
            "sha256": "ab" * 32,
            "inputs": [f"x: float32[batch, {rows}]"],
            "example": {"batch": 2},
            "domain": {"batch": {"low": 1, "high": 16, "multiple": 1, "declared": True}},
        },
        "versions": {"torch": "2.13.0"},
        "verdict": verdict,
        "route": "trace",
        "remedies": [],
        "evidence": {"level": "quick", "tested": [{}, {}]},
        "file": {"name": model.name, "sha256": hash_file(model)},
    }
    if external is not None:
        data = model.parent / external
        if "/" in external or external.endswith(".safetensors"):
            record["file"]["linked"] = [{"name": external, "blake3": hash_checkpoint(data)}]
        else:
            record["file"]["data"] = {"name": external, "sha256": hash_file(data)}
    get_record_path(model).write_text(json.dumps(record))


def answers(model: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the outputs of the file, run as a user would."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def loads(path: Path) -> Any:
    return onnx.load(path)
