"""A large model is judged by answers written down before, as strictly as a small one where it matters."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from tests.weights.nets import BOUNDS, SPEC, seeded

import fairway
from fairway.evidence import answers
from fairway.runtimes import ort


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as large."""
    monkeypatch.setattr(answers, "LARGE", 0)


@pytest.mark.usefixtures("large")
def test_the_evidence_says_where_float64_was_asked(tmp_path: Path) -> None:
    result = fairway.export(seeded(), SPEC, tmp_path / "out.onnx", bounds=BOUNDS, level="quick")
    assert result.verdict == "verified"
    count = len(result.record["evidence"]["tested"])
    assert result.record["evidence"]["yardstick"] == (
        f"error against float64 at most 10 times PyTorch's own, learnt at 3 of {count} samples; at the others "
        "against PyTorch itself"
    )


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("by", [1e-4, 1e-2])
def test_a_wrong_file_is_refused(tmp_path: Path, by: float) -> None:
    fairway.export(seeded(), SPEC, tmp_path / "out.onnx", bounds=BOUNDS, level="quick")
    model = onnx.load(tmp_path / "out.onnx")
    bias = next(t for t in model.graph.initializer if t.name == "blocks.4.fc.bias")
    moved = onnx.numpy_helper.to_array(bias) + by
    bias.CopyFrom(onnx.numpy_helper.from_array(moved.astype("float32"), bias.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    result = fairway.verify(tmp_path / "wrong.onnx", seeded(), SPEC, bounds=BOUNDS, level="quick")
    assert result.verdict == "wrong"


@pytest.mark.usefixtures("large")
def test_what_pytorch_refuses_is_the_users_to_mend(tmp_path: Path) -> None:
    class Picky(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            if input.shape[1] == 9:
                raise ValueError("nine is too long")
            return super().forward(input)

    result = fairway.export(
        Picky(64, 2).eval(), ["input: float32[batch, time, 64]"], tmp_path / "out.onnx", bounds=BOUNDS, level="quick"
    )
    assert result.verdict != "verified"
    assert any("nine is too long" in finding.seen for finding in result.findings)


def test_bfloat16_goes_in_and_comes_out(tmp_path: Path) -> None:
    one = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.BFLOAT16, ["n"])
    two = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.BFLOAT16, ["n"])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [one], [two])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9),
              tmp_path / "m.onnx")  # fmt: skip
    x = torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16)
    got = ort.OrtSession(tmp_path / "m.onnx").run(["x"], [x])
    assert got[0].tolist() == x.float().tolist()
