"""No sample repeats the inputs of another after the budget has moved samples to cheap points."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import nn

from fairway.judge import samples as samples_module
from fairway.judge.evidence import FileFacts
from fairway.judge.samples import list_samples
from fairway.model.sample import Sample
from fairway.model.subject import Subject, build_subject

FLOPS_PER_VOLUME = 4.6e9
"""Two samples of each kind fit into the budget, all at the lowest point."""


class Sums(nn.Module):
    def forward(self, ids: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        return ids if noise is None else ids + noise


def make_subject(lines: list[str]) -> Subject:
    subject = build_subject(Sums(), lines, bounds={"batch": (1, 4), "seq": (4, 32)})
    return replace(subject, study=replace(subject.study, flops_per_volume=FLOPS_PER_VOLUME))


def count_equal_inputs(subject: Subject, samples: list[Sample]) -> int:
    drawn = [
        (sample.point, subject.make(sample.sizes, sample.seed, sample.flavor))
        for sample in samples
        if sample.flavor in ("zeros", "least", "most") and sample.touch is None
    ]
    return sum(a == b and all(map(torch.equal, x, y)) for (a, x), (b, y) in combinations(drawn, 2))


def list_standard_samples(subject: Subject, tmp_path) -> list[Sample]:
    path = tmp_path / "x.onnx"
    torch.onnx.export(nn.Identity().eval(), (torch.zeros(1, 4),), path, dynamo=True, verbose=False)
    return list_samples(subject, str(path), "standard", {}, (), FileFacts())


def test_zeros_that_the_budget_moved_to_one_point_are_run_once(tmp_path, monkeypatch) -> None:
    subject = make_subject(["ids: float32[batch, seq]"])
    assert count_equal_inputs(subject, list_standard_samples(subject, tmp_path)) == 0
    monkeypatch.setattr(samples_module, "CONSTANT_FLAVORS", ())
    assert count_equal_inputs(subject, list_standard_samples(subject, tmp_path)) > 0


@pytest.mark.parametrize("flavor", ["zeros", "most"])
def test_samples_that_differ_in_one_input_are_kept(flavor: str, tmp_path, monkeypatch) -> None:
    subject = make_subject(["ids: int64[batch, seq] < 9", "noise: float32[batch, seq]"])
    kept = [s for s in list_standard_samples(subject, tmp_path) if s.flavor == flavor]
    monkeypatch.setattr(samples_module, "CONSTANT_FLAVORS", ())
    every = [s for s in list_standard_samples(subject, tmp_path) if s.flavor == flavor]
    distinct = {tuple(t.numpy().tobytes() for t in subject.make(s.sizes, s.seed, s.flavor)) for s in every}
    assert len(kept) == len(distinct)
