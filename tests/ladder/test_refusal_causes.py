"""A refusal of PyTorch names what to declare: the dtype, the limit of an index, or the largest size that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fairway


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(10, 4), nn.Embedding(16, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids) + self.positions(torch.arange(ids.shape[1]))  # type: ignore[no-any-return]


class Two(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y.T)[..., :1]


LIMITED = {"batch": (1, 8), "seq": (1, 16)}


@pytest.mark.parametrize(
    ("model", "lines", "bounds", "todo"),
    [
        (
            Words(),
            ["ids: int64[batch, seq] < 1000"],
            LIMITED,
            "Declare the limit of the index: `ids: int64[batch, seq] < 10`.",
        ),
        (
            Words(),
            ["ids: float32[batch, seq]"],
            LIMITED,
            "Declare the dtype that the model computes in: `ids: int64[batch, seq]`.",
        ),
        (
            Words(),
            ["ids: int64[batch, seq] < 10"],
            {"batch": (1, 8), "seq": (1, 40)},
            "Declare seq=1..16: forward works up to seq=16 and fails at seq=17.",
        ),
        (
            nn.Linear(3, 2),
            ["input: float64[batch, 3]"],
            {"batch": (1, 8)},
            "Declare the dtype that the model computes in: `input: float32[batch, 3]`.",
        ),
        (
            Two(),
            ["x: float32[batch, 3]", "y: float64[batch, 3]"],
            {"batch": (1, 8)},
            "Declare the dtype that the model computes in: `x: float64[batch, 3]`.",
        ),
    ],
    ids=["index", "float ids", "size", "float64", "two inputs"],
)
def test_a_refusal_names_what_to_declare(
    model: Any, lines: list[str], bounds: dict[str, tuple[int, int]], todo: str, tmp_path: Path
) -> None:
    result = fairway.export(model.eval(), lines, tmp_path / "out.onnx", bounds=bounds, level="quick")
    (finding,) = [finding for finding in result.findings if finding.code == "FW201"]
    assert (result.verdict, finding.todo[0]) == ("failed", todo)
    assert result.record.ladder == ()


def test_a_refusal_for_another_reason_keeps_the_general_advice(tmp_path: Path) -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("the scale was never set")

    result = fairway.export(Raises(), ["x: float32[batch, 3]"], tmp_path / "out.onnx", level="quick")
    assert result.findings[0].todo == ("Fix forward, or narrow the bounds to what it accepts.",)
