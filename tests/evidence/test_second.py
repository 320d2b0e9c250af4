"""FW409 blames a runtime only if its answer is outside the tolerance that the other engine keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from fairway.judge.judge import Judge
from fairway.judge.runtimes import second
from fairway.judge.runtimes.eager import run_eager, to_array
from fairway.judge.runtimes.second import SLACK_FACTOR, consult_second_runtime
from fairway.model.sample import make_sample
from fairway.model.subject import Subject, build_subject


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def run_off_by(subject: Subject, error: float) -> Any:
    """PyTorch itself with an error at the largest element of the answer."""

    def run(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[Any]:
        answer = to_array(run_eager(subject, tensors)[0]).copy()
        answer.reshape(-1)[np.abs(answer).argmax()] += error
        return [answer]

    return run


@pytest.mark.parametrize(
    ("first", "other", "words"),
    [
        (0.0, 0.0, None),
        (4.0, 4.0, None),  # both beyond what a file may be off, and within the wider tolerance
        (4.0, 0.0, None),
        (0.0, 4.0, None),
        (1e6, 0.0, "agrees with PyTorch and ONNX Runtime does not"),
        (0.0, 1e6, "ONNX Runtime agrees with PyTorch and another does not"),
        (1e6, 1e6, None),
    ],
)
def test_both_engines_are_held_to_the_same_tolerance(
    monkeypatch: pytest.MonkeyPatch, first: float, other: float, words: str | None
) -> None:
    """Errors are in units of what is allowed."""
    subject = build_subject(Net().eval(), ["x: float32[batch, 8]"], bounds={"batch": (1, 4)})
    samples = [make_sample(subject.example, seed) for seed in (1, 2, 3)]
    unit = _find_allowed(subject, samples)
    judge = Judge(subject, run_off_by(subject, first * unit), ["y"])
    for one in samples:
        judge.take(one)
    monkeypatch.setattr(Judge, "excuse", lambda self, trial: False)
    monkeypatch.setattr(second, "open_second_runtime", lambda path: ("another", run_off_by(subject, other * unit)))
    said, findings = consult_second_runtime(judge, "out.onnx", samples)
    if words is None:
        assert findings == []
        assert said == "another agrees at 3 samples"
    else:
        assert [finding.code for finding in findings] == ["FW409"]
        assert words in findings[0].seen
        assert said == "another disagrees at 3 of 3 samples"


def _find_allowed(subject: Subject, samples: list[Any]) -> float:
    """The error at which the ratio is 1, found by an error that is surely too large."""
    judge = Judge(subject, run_off_by(subject, 0.01), ["y"])
    trials = [judge.take(one) for one in samples]
    ratio = max(judge.compute_ratio(trial) for trial in trials)
    assert ratio > SLACK_FACTOR
    return 0.01 / ratio


def test_an_answer_that_is_excused_is_not_blamed_on_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = build_subject(Net().eval(), ["x: float32[batch, 8]"], bounds={"batch": (1, 4)})
    samples = [make_sample(subject.example, seed) for seed in (1, 2, 3)]
    judge = Judge(subject, run_off_by(subject, 1.0), ["y"])
    monkeypatch.setattr(Judge, "excuse", lambda self, trial: True)
    monkeypatch.setattr(second, "open_second_runtime", lambda path: ("another", run_off_by(subject, 0.0)))
    assert consult_second_runtime(judge, "out.onnx", samples) == ("another agrees at 3 samples", [])
