"""What hypothesis finds at the level deep is a wrong file, and every sample at which it failed is said to be wrong."""

import importlib
from pathlib import Path

import onnx_ir as ir
import pytest
import torch

from fairway.evidence import gather as gathering
from fairway.evidence.deep import explore
from fairway.evidence.judge import Judge
from fairway.evidence.lattice import Sample, sample
from fairway.runtimes.eager import to_array
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


def test_the_same_samples_are_drawn_whatever_else_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """hypothesis takes numbers out of modules that were loaded in the meantime."""

    def drawn() -> list[Sample]:
        subject = build_subject(Same(), ["x: float32[time]"], bounds={"time": (1, 500)})
        judge = Judge(subject, lambda names, tensors: [to_array(t * 1) for t in tensors], ["y"])
        assert explore(judge, lambda event: None) is None
        return [trial.sample for trial in judge.trials]

    first = drawn()
    (tmp_path / "loaded_between_two_explorations.py").write_text(f"numbers = {list(range(101, 500, 3))}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("loaded_between_two_explorations")
    assert drawn() == first
