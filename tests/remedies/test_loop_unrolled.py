"""Features spread over samples by a loop: wrong or refused without the remedy, right at every length with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import fairway
from fairway.convert.remedies.contract import Match, Refusal
from fairway.convert.remedies.loop_unrolled import REMEDY
from of_libraries import Library

sys.path.insert(0, str(Path(__file__).parents[1]))  # the harness of tests/rewrite serves here too

from rewrite.harness import case_of, export, largest_difference, outputs

ROUTES = ("export", "trace")


class Spread(nn.Module):
    """One correction per nine samples, written over the samples it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Linear(3, 3)

    def spread(self, feat, frame_len):
        n = int(frame_len.item())
        out = torch.zeros(feat.shape[0], n, 3)
        for i in range(feat.shape[1]):
            for j in range(max(0, i * 9 - 4), min(i * 9 + 5, n)):
                out[:, j, :] += feat[:, i, :]
        return out

    def forward(self, x):
        frame_len = torch.tensor(x.shape[1])
        return x + self.spread(self.decoder(x[:, ::9]), frame_len)


def example(length: int = 20) -> tuple[torch.Tensor, ...]:
    return (torch.randn(2, length, 3),)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Spread().eval()


def test_a_trace_is_wrong_at_other_lengths_without_it(model: nn.Module) -> None:
    file = export(model, example(), [(0, 1)], "trace")
    assert largest_difference(model, file, [example()]) < 1e-6
    with pytest.raises(Exception, match="Non-zero status code"):
        largest_difference(model, file, [example(47)])


def test_torch_export_refuses_without_it(model: nn.Module) -> None:
    with pytest.raises(Exception, match=r"data-dependent|specialized"):
        export(model, example(), [(0, 1)], "export")


@pytest.mark.parametrize("route", ROUTES)
def test_parity_holds_with_it_at_other_lengths(model: nn.Module, route: str) -> None:
    case = case_of(model, example(), route)
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    with REMEDY.apply(case, match):
        file = export(model, example(), [(0, 1)], route)
    points = [(torch.randn(b, t, 3),) for b, t in ((2, 20), (3, 47), (5, 101))]
    assert largest_difference(model, file, points) < 1e-6


@pytest.mark.parametrize("route", ROUTES)
def test_the_original_is_back_afterwards_and_was_equal(model: nn.Module, route: str) -> None:
    case, original = case_of(model, example(), route), Spread.__dict__["spread"]
    (x,) = example(31)
    want = outputs(model, (x,))
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    with REMEDY.apply(case, match):
        got = outputs(model, (x,))
    assert Spread.__dict__["spread"] is original
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class ReturnsEarly(nn.Module):
    def forward(self, x):
        total = torch.zeros(x.shape[0], 3)
        for t in range(x.shape[1]):
            total = total + x[:, t]
            if total.max() > 10:
                return total
        return -total


def test_a_loop_over_layers_is_refused() -> None:
    answer = REMEDY.detect(case_of(Layers(), example(), "export"))
    assert answer == Refusal("no Python loop in the model's own code is bounded by a tensor's size or value")


def test_a_return_inside_the_loop_is_rewritten() -> None:
    answer = REMEDY.detect(case_of(ReturnsEarly(), example(), "export"))
    assert isinstance(answer, Match)
    assert answer.where[0].source == "for t in range(x.shape[1]):"


@pytest.mark.parametrize("route", ROUTES)
def test_applying_it_twice_changes_nothing_more(model: nn.Module, route: str) -> None:
    case = case_of(model, example(), route)
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    with REMEDY.apply(case, match):
        once = Spread.__dict__["spread"]
        assert isinstance(REMEDY.detect(case), Refusal)
        with REMEDY.apply(case, match):
            assert Spread.__dict__["spread"] is once
        assert Spread.__dict__["spread"] is once


def test_a_librarys_loop_whose_second_step_is_far_away_is_found(tmp_path: Path, library: Library) -> None:
    model = library(
        "        total = torch.zeros_like(x[:, 0])\n"
        "        for i in range((x.shape[1] + 7) // 8):\n"
        "            total = total + x[:, i * 8]\n"
        "        return total\n"
    )
    bounds = {"batch": (1, 3), "n": (2, 20)}
    result = fairway.export(model, ["x: float32[batch, n]"], tmp_path / "n.onnx", bounds=bounds, level="quick")
    assert (result.verdict, result.remedies) == ("verified", ("loop_unrolled",))
