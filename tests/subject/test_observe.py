"""Observed calls give spec lines, dims and bounds, which an export takes as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import fairway
from fairway.diagnostics.errors import UserError
from fairway.model.observe import find_observation


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(50, 4), nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.out(self.words(ids)) * mask[..., None] * scale  # type: ignore[no-any-return]


def test_calls_become_lines_and_bounds_of_an_export(tmp_path: Path) -> None:
    model = Tagger().eval()
    with fairway.observe(model) as seen:
        for batch, length, largest in ((2, 5, 30), (1, 9, 11), (2, 7, 49)):
            ids = torch.full((batch, length), largest)
            model(ids, mask=torch.ones(batch, length, dtype=torch.bool), scale=2.0)
    model(torch.zeros(40, 40, dtype=torch.long), torch.ones(40, 40, dtype=torch.bool))
    assert str(seen) == (
        "3 calls\nids: int64[batch, dim_1] < 50\nmask: bool[batch, dim_1]\n--dim batch=1..2\n--dim dim_1=5..9"
    )
    assert find_observation(model) is seen
    result = fairway.export(model, seen.lines, tmp_path / "out.onnx", bounds=seen.bounds, level="quick")
    assert result.verdict == "verified"


def test_a_size_that_never_changes_is_fixed() -> None:
    model = nn.Linear(3, 2)
    with fairway.observe(model) as seen:
        model(torch.randn(4, 3))
    assert (seen.lines, seen.bounds, seen.calls) == (["input: float32[4, 3]"], {}, 1)


def test_a_model_that_was_not_called_is_reported() -> None:
    with fairway.observe(nn.Linear(3, 2)) as seen:
        pass
    with pytest.raises(UserError, match="the model was not called while it was observed"):
        print(seen)
