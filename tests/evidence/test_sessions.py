"""All ONNX Runtime sessions come from one factory, with the options that the caller names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from fairway.model.ort_session import SessionSettings, open_session

SOURCE = Path(__file__).parents[2] / "src/fairway"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def model() -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xy"]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "graph", ends[:1], ends[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(
    "settings",
    [
        None,
        SessionSettings(),
        SessionSettings(threads=0),
        SessionSettings(1, "ORT_DISABLE_ALL"),
        SessionSettings(1, is_lean=True),
        SessionSettings(config_entries={"session.intra_op.allow_spinning": "0"}),
    ],
)
def test_a_session_opens_from_a_file_and_from_bytes(
    model: bytes, settings: SessionSettings | None, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(model)
    for source in (model, tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        session = open_session(source, settings)
        assert np.array_equal(session.run(None, {"x": X})[0], X * [1, 2, 3])
        assert session.get_providers() == ["CPUExecutionProvider"]


def test_threads_are_those_of_the_settings(model: bytes) -> None:
    options = open_session(model, SessionSettings(threads=3)).get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)


def test_a_lean_session_keeps_no_memory(model: bytes) -> None:
    options = open_session(model, SessionSettings(is_lean=True)).get_session_options()
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry("session.disable_prepacking") == "1"


def test_the_optimized_model_and_the_profile_are_written(model: bytes, tmp_path: Path) -> None:
    optimized = tmp_path / "optimized.onnx"
    settings = SessionSettings(optimized_model_path=str(optimized), profile_prefix=str(tmp_path / "profile"))
    session = open_session(model, settings)
    session.run(None, {"x": X})
    assert Path(session.end_profiling()).parent == tmp_path
    assert optimized.exists()


def test_no_other_module_opens_a_session() -> None:
    users = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "= onnxruntime.SessionOptions()" in path.read_text()
    }
    assert users == {"model/ort_session.py"}
