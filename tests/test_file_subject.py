"""A subject from a file alone: the record's words, else the file's; the user's own win."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.bench.conftest import perceptron

import fairway
from fairway.diagnostics.errors import UserError
from fairway.judge.file_subject import build_file_subject
from fairway.judge.runtimes.eager import run_eager
from fairway.model.onnx_file import OnnxValue, open_header
from fairway.model.recipe import Overrides
from fairway.record.files import get_record_path
from fairway.record.reader import read_record


class Embed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "embed.onnx"
    lines = ["ids: int64[batch, seq] < 50"]
    bounds = {"batch": (1, 4), "seq": (2, 9)}
    result = fairway.export(Embed().eval(), lines, path, bounds=bounds, level="quick", example={"batch": 3, "seq": 5})
    assert result.verified
    return path


def test_the_record_says_sizes_and_legal_values(exported: Path) -> None:
    subject = build_file_subject(open_header(exported), read_record(get_record_path(exported)), Overrides())
    assert [str(one) for one in subject.spec] == ["ids: int64[batch, seq] < 50"]
    assert str(subject.domain) == "batch 1..4, seq 2..9"
    assert dict(subject.example) == {"batch": 3, "seq": 5}
    (answer,) = run_eager(subject, subject.make({"batch": 2, "seq": 3}, 0, "normal"))
    assert answer.shape == (2, 3, 4)


def test_the_users_own_lines_win(exported: Path) -> None:
    said = Overrides(("ids: int64[batch, seq] < 7",), {"seq": (2, 4)})
    subject = build_file_subject(open_header(exported), read_record(get_record_path(exported)), said)
    assert [str(one) for one in subject.spec] == ["ids: int64[batch, seq] < 7"]
    assert str(subject.domain) == "batch 1..4, seq 2..4"
    assert subject.example["seq"] <= 4


def test_without_a_record_the_files_own_shapes_are_taken(tmp_path: Path) -> None:
    subject = build_file_subject(open_header(perceptron(tmp_path / "a.onnx")), None, Overrides())
    assert [str(one) for one in subject.spec] == ["x: float32[batch, 64]"]
    assert str(subject.domain) == "batch 1..64"


@pytest.mark.parametrize("size", [None, "batch-size!", "1e5"])
def test_a_dim_without_a_name_of_ours_is_named_after_its_place(tmp_path: Path, size: str | None) -> None:
    subject = build_file_subject(open_header(perceptron(tmp_path / "a.onnx", dims=(size, 64))), None, Overrides())
    assert [str(one) for one in subject.spec] == ["x: float32[x_0, 64]"]


def test_an_input_of_unknown_shape_must_be_declared(tmp_path: Path) -> None:
    from dataclasses import replace

    header = open_header(perceptron(tmp_path / "a.onnx"))
    with pytest.raises(UserError) as caught:
        build_file_subject(replace(header, inputs=(OnnxValue("x", "float32", None),)), None, Overrides())
    assert caught.value.finding.code == "FW010"
