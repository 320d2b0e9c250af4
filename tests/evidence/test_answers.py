"""A large model is judged by answers written down before, as strictly as a small one where it matters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tests.weights.nets import BOUNDS, SPEC, seeded

import fairway
from fairway.judge import answers
from fairway.judge.runtimes import ort
from fairway.model.weight_mappings import Mappings


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as large."""
    monkeypatch.setattr(answers, "LARGE_MODEL_BYTES", 0)


@pytest.mark.usefixtures("large")
def test_the_evidence_says_where_float64_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = fairway.export(seeded(), SPEC, tmp_path / "out.onnx", bounds=BOUNDS, level="quick")
    assert result.verdict == "verified"
    assert result.record.evidence.yardstick == "error against float64 at most 10 times PyTorch's own"
    monkeypatch.setattr(answers, "MAX_TRUTH_FLOPS", 0.0)
    result = fairway.export(seeded(), SPEC, tmp_path / "dear.onnx", bounds=BOUNDS, level="quick")
    count = len(result.record.evidence.tested)
    assert result.record.evidence.yardstick == (
        f"error against float64 at most 10 times PyTorch's own, learned at 3 of {count} samples; at the others "
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
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9),
        tmp_path / "m.onnx",
    )
    x = torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16)
    got = ort.OrtSession(tmp_path / "m.onnx").run(["x"], [x])
    assert got[0].tolist() == x.float().tolist()


def test_pages_of_weights_are_let_go_while_a_lean_session_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And read again: the answer is the same."""
    swept = []
    forget = Mappings.forget

    def counted(self: Mappings) -> None:
        swept.append(bool(self))
        forget(self)

    monkeypatch.setattr(ort, "SWEEP_SECONDS", 0.001)
    monkeypatch.setattr(Mappings, "forget", counted)
    net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(20))).eval()
    spec, bounds = ["input: float32[rows, 512]"], {"rows": (1, 4096)}
    fairway.export(net, spec, tmp_path / "out.onnx", bounds=bounds, level="none", weights="copy")
    session, x = ort.OrtSession(tmp_path / "out.onnx", lean=True), torch.ones(4096, 512)
    lean = session.run(session.input_names, [x])
    assert any(swept)
    count = len(swept)
    plain = ort.OrtSession(tmp_path / "out.onnx").run(session.input_names, [x])
    assert len(swept) == count
    np.testing.assert_allclose(lean[0], plain[0], rtol=1e-4, atol=1e-6)
