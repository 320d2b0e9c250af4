"""Forms of loops that are exported: ends by value, growing tensors, moving slices, lists of numbers, a single step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fairway.convert.remedies.contract import Refusal
from fairway.convert.rewrite.candidates import make_candidates
from fairway.convert.rewrite.find import find_sites

from .harness import copies, export, largest_difference, outputs

ROUNDING = 5e-6


class UntilStill(nn.Module):
    """Ends by `allclose`, and returns a name that the loop alone binds."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        center = x[0]
        for _ in range(12):
            weights = torch.softmax(-(x - center).abs().sum(1), 0)
            new = weights @ x
            if torch.allclose(new, center, atol=1e-3):
                break
            center = new
        return center, weights


class GrowingUntilLarge(nn.Module):
    """A tensor that is reordered and grows, until a value ends the loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        history, total = x.unsqueeze(1), x
        for _ in range(6):
            total = total + x.abs()
            order = total.sum(1).argsort()
            history = torch.cat([history[order], total.unsqueeze(1)], dim=1)
            if total.max() > 5:
                break
        return history * 2


class KeptByFlags(nn.Module):
    """Reads and writes the same part, whose length changes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        distance = (x[:, None] - x[None]).abs().sum(-1)
        keep = torch.ones(x.size(0), dtype=torch.bool)
        for i in range(x.size(0)):
            if not keep[i]:
                continue
            keep[i + 1 :] &= distance[i, i + 1 :] > 2.5
        return torch.where(keep[:, None], x, torch.zeros_like(x))


class Ramp(nn.Module):
    """A list of numbers made a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ramp = torch.tensor([(i + 1) / len(x) for i in range(len(x))], dtype=x.dtype)
        return x * ramp[:, None]


class LargeOrNothing(nn.Module):
    """A list that may stay empty, and is asked if it is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for row in x:
            if row.sum() > 1.5:
                kept.append(row * 2)
        return torch.stack(kept) if kept else torch.zeros(0, 4)


class IndicesTogether(nn.Module):
    """Index tensors beside the loop's own index."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, score = torch.arange(4), x[0].clone()
        tags = x.argmax(1)
        for i in range(1, x.shape[0]):
            score = score + x[i, rows] * x[tags[i], rows] + F.relu(x[i, 0])
        return score


FORMS = [UntilStill, GrowingUntilLarge, KeptByFlags, Ramp, LargeOrNothing, IndicesTogether]


def draw(length: int) -> tuple[torch.Tensor]:
    return (torch.randn(length, 4, generator=torch.Generator().manual_seed(length)),)


@pytest.mark.parametrize("kind", FORMS)
def test_a_form_of_loop_is_right_in_eager_and_in_the_file(kind: type[nn.Module]) -> None:
    model = kind().eval()
    points = [draw(5), draw(7), draw(9), draw(1)]
    before = [outputs(model, point) for point in points]
    found = tuple(site for site in find_sites(model) if site.suspect.kind == "loop")
    made = make_candidates(model, found, traced=False)
    assert not isinstance(made, Refusal), made
    with made[0].install():
        after = [outputs(model, point) for point in points]
        file = export(model, copies(points[0]), [(0,)], "export")
    for expected, got in zip(before, after, strict=True):
        for a, b in zip(expected, got, strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=ROUNDING)
    assert largest_difference(model, file, points) < ROUNDING
