"""At the level deep, hypothesis finds wrong files, and every failing sample is reported as wrong."""

import importlib
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch

from fairway.judge import gather as gathering
from fairway.judge import samples as sampling
from fairway.judge.deep import find_failing_sample
from fairway.judge.judge import Judge
from fairway.judge.runtimes.eager import to_array
from fairway.judge.sample_result import SampleResult
from fairway.model.sample import Sample, make_sample
from fairway.model.subject import build_subject

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
    monkeypatch.setattr(sampling, "list_lattice_samples", lambda *args: [make_sample(subject.example)])
    ir.save(ir.from_onnx_text(LONG), tmp_path / "long.onnx")
    found = gathering.gather_evidence(
        subject, gathering.JudgeRequest(str(tmp_path / "long.onnx"), ["y"], "deep"), lambda event: None
    )
    assert found.wrong
    assert found.smallest == {"time": 101}
    assert found.boundaries == ("right up to time=100, wrong from 101",)
    assert all(t.right == (t.point["time"] <= 100) for t in found.tested)


def test_the_same_samples_are_drawn_whatever_else_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """hypothesis takes numbers out of modules that were loaded in the meantime."""

    def drawn() -> list[Sample]:
        subject = build_subject(Same(), ["x: float32[time]"], bounds={"time": (1, 500)})
        judge = Judge(subject, lambda names, tensors: [to_array(t * 1) for t in tensors], ["y"])
        assert find_failing_sample(judge, lambda event: None) is None
        return [trial.sample for trial in judge.trials]

    first = drawn()
    (tmp_path / "loaded_between_two_explorations.py").write_text(f"numbers = {list(range(101, 500, 3))}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("loaded_between_two_explorations")
    assert drawn() == first


class Learning(Judge):
    """A judge that calls each sample wrong the first time it is asked, and right from then on."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: set[int] = set()

    def compute_ratio(self, trial: SampleResult) -> float:
        again = id(trial) in self.asked
        self.asked.add(id(trial))
        return super().compute_ratio(trial) if again else 2.0

    def excuse(self, trial: SampleResult) -> bool:
        return False


def test_a_sample_that_is_right_in_the_end_is_not_wrong() -> None:
    """hypothesis runs what failed again, and calls a test flaky that passes then."""
    subject = build_subject(Same(), ["x: float32[time]"], bounds={"time": (1, 300)})
    judge = Learning(subject, lambda names, tensors: [to_array(t * 1) for t in tensors], ["y"])
    assert find_failing_sample(judge, lambda event: None) is None
    assert len(judge.trials) > 100, "the search must go on after the first sample"


def test_a_wrong_file_is_found_among_samples_that_only_seem_wrong() -> None:
    subject = build_subject(Same(), ["x: float32[time]"], bounds={"time": (1, 300)})
    judge = Learning(subject, lambda names, tensors: [to_array(t + (t.shape[0] > 100)) for t in tensors], ["y"])
    found = find_failing_sample(judge, lambda event: None)
    assert found is not None
    assert found.sizes["time"] > 100
