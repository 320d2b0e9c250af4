"""A model that computes something else while it is exported is told so, with the line."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import fairway
from fairway.judge.locate.other_way import find_other_way
from fairway.model.subject import Subject, build_subject


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        told = torch.compiler.is_exporting()
        note = "for a file" if told else "for itself"  # which changes nothing
        y = x + len(note) / len(note)
        if torch.compiler.is_exporting():
            y = y.flip(1)
        return y * 2


class AsksInVain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x if torch.compiler.is_exporting() else x * 2


BOUNDS = {"batch": (1, 4)}


def subject_of(model: nn.Module) -> Subject:
    return build_subject(model.eval(), ["x: float32[batch, 4]"], bounds=BOUNDS)


def test_the_question_that_leads_to_what_runs_only_when_exported_is_named() -> None:
    subject = subject_of(Asks())
    found = find_other_way(subject, subject.make({"batch": 2}, 1, "normal"))
    assert found is not None
    assert found.code == "FW216"
    assert found.where is not None
    assert found.where.source == "if torch.compiler.is_exporting():"
    assert found.where.module == "(the model itself) (Asks)"
    assert "of the largest value" in found.seen


def test_another_way_to_the_same_answer_is_nothing() -> None:
    subject = subject_of(AsksInVain())
    assert find_other_way(subject, subject.make({"batch": 2}, 1, "normal")) is None
    subject = build_subject(nn.Linear(4, 4), ["input: float32[batch, 4]"], bounds=BOUNDS)
    assert find_other_way(subject, [torch.randn(2, 4)]) is None


def test_an_answer_of_another_shape_or_with_nan_is_another() -> None:
    class Shorter(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :2] if torch.compiler.is_compiling() else x

    class Nan(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.log() if torch.compiler.is_compiling() else x

    for model in (Shorter(), Nan()):
        assert find_other_way(subject_of(model), [torch.tensor([[-1.0, 2, 3, 4]])]) is not None


def test_an_export_says_it_first(tmp_path) -> None:
    result = fairway.export(
        Asks(), ["x: float32[batch, 4]"], tmp_path / "a.onnx", bounds=BOUNDS, routes=["export-dynamic"], level="quick"
    )
    assert result.verdict == "wrong"
    assert result.findings[0].code == "FW216"
