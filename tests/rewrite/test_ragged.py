"""Lists of rows that differ in length, exported and compared with PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from fairway.convert.remedies.contract import Refusal
from fairway.convert.rewrite.candidates import RewriteCandidate, make_candidates
from fairway.convert.rewrite.find import find_sites

from .harness import copies, export, largest_difference, outputs

ROUNDING = 5e-6


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)


class CutByIndex(Rows):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return pad_sequence([self.fc(x[i, : lengths[i]]) for i in range(x.shape[0])], batch_first=True)


class SplitAgain(Rows):
    """Cut and joined, then split by the same lengths and padded with another number."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        flat = torch.cat([row[:n] for row, n in zip(x, lengths.tolist())])  # noqa: B905
        return pad_sequence(torch.split(self.fc(flat), lengths.tolist()), padding_value=-1.0)


class Repeated(Rows):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        counts = lengths.unsqueeze(1) + torch.arange(x.shape[1]) % 2
        rows = [torch.repeat_interleave(row, count, dim=0) for row, count in zip(x, counts)]  # noqa: B905
        return pad_sequence(rows, batch_first=True)


class MeanOfEach(Rows):
    """The rows go through something that mixes their steps, and must not be applied to all of them together."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[i, :n].mean(0) for i, n in enumerate(lengths)])


def draw(batch: int, time: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(batch + time)
    return torch.randn(batch, time, 4, generator=generator), torch.randint(1, time + 1, (batch,), generator=generator)


def rewrite(model: nn.Module) -> RewriteCandidate:
    made = make_candidates(model, tuple(s for s in find_sites(model) if s.suspect.kind == "loop"), traced=False)
    assert not isinstance(made, Refusal), made
    return made[0]


@pytest.mark.parametrize("kind", [CutByIndex, SplitAgain, Repeated])
def test_rows_of_different_lengths_are_right_in_the_file(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    points = [draw(3, 5), draw(4, 7), draw(2, 3)]
    before = [outputs(model, point) for point in points]
    with rewrite(model).install():
        after = [outputs(model, point) for point in points]
        file = export(model, copies(points[0]), [(0, 1), (0,)], "export")
    for expected, got in zip(before, after, strict=True):
        torch.testing.assert_close(got[0], expected[0], rtol=0, atol=ROUNDING)
    assert largest_difference(model, file, points) < ROUNDING


def test_what_mixes_the_steps_of_a_row_is_not_taken_for_equal() -> None:
    model, point = MeanOfEach().eval(), draw(3, 5)
    before = outputs(model, point)
    with rewrite(model).install(), pytest.raises((TypeError, AssertionError)):
        torch.testing.assert_close(outputs(model, point), before)
