"""What hypothesis finds at the level deep is a wrong file, and every sample at which it failed is said to be wrong."""

from pathlib import Path

import onnx_ir as ir
import pytest
import torch

from fairway.evidence import gather as gathering
from fairway.evidence.lattice import sample
from fairway.subject.subject import build_subject

LONG = """<ir_version: 10, opset_import: ["" : 20]>
g (float[time] x) => (float[time] y)
<int64 k = {100}, int64 first = {0}> {
  n = Shape(x)
  one = Gather(n, first)
  long = Greater(one, k)
  off = Cast <to = 1> (long)
  y = Add(x, off)
}"""


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1


def test_a_file_found_out_by_hypothesis_alone_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = build_subject(Same(), ["x: float32[time]"], bounds={"time": (1, 300)})
    monkeypatch.setattr(gathering, "subject_lattice", lambda *args: [sample(subject.example)])
    ir.save(ir.from_onnx_text(LONG), tmp_path / "long.onnx")
    found = gathering.gather(subject, str(tmp_path / "long.onnx"), ["y"], "deep", {}, [], lambda event: None)
    assert found.wrong
    assert found.smallest == {"time": 101}
    assert found.boundaries == ("right up to time=100, wrong from 101",)
    assert all(t.right == (t.point["time"] <= 100) for t in found.tested)
