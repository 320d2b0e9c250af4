"""Positions made of a Python list: refused without the remedy, right at every length with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import fairway
from fairway.convert.remedies.contract import Match, Refusal
from fairway.convert.remedies.list_frozen import REMEDY
from of_libraries import Library

sys.path.insert(0, str(Path(__file__).parents[1]))  # the harness of tests/rewrite serves here too

from rewrite.harness import case_of, export, largest_difference, outputs


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = 2

    def forward(self, x):
        length = x.shape[1]
        backwards = torch.tensor(list(range(length - self.held))[::-1], device=x.device)
        forwards = torch.as_tensor(tuple(range(1, 2 * length, 2)), dtype=torch.float32)
        return x[:, self.held :] * backwards, x + forwards


class Squares(nn.Module):
    """A list that does more than count."""

    def forward(self, x):
        return x + torch.tensor([*list(range(x.shape[1]))[1:], 0])


def example(length: int = 5) -> tuple[torch.Tensor, ...]:
    return (torch.randn(2, length),)


def test_torch_export_refuses_without_it() -> None:
    with pytest.raises(Exception, match="specialized"):
        export(Positions(), example(), [(0, 1)], "export")


def test_the_file_is_right_at_other_lengths_with_it() -> None:
    model = Positions().eval()
    case = case_of(model, example(), "export")
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    assert [where.line and where.source for where in match.where] == [
        "backwards = torch.tensor(list(range(length - self.held))[::-1], device=x.device)",
        "forwards = torch.as_tensor(tuple(range(1, 2 * length, 2)), dtype=torch.float32)",
    ]
    with REMEDY.apply(case, match):
        file = export(model, example(), [(0, 1)], "export")
    assert largest_difference(model, file, [example(n) for n in (3, 5, 8, 17)]) == 0


def test_other_lists_and_traced_routes_are_refused() -> None:
    refused = REMEDY.detect(case_of(Squares(), example(), "export"))
    assert isinstance(refused, Refusal)
    assert "no Python list in the model's code counts to a tensor's size" in refused.reason
    refused = REMEDY.detect(case_of(Positions(), example(), "trace"))
    assert refused == Refusal("lists are only rewritten for torch.export", refused.where)


def test_applying_it_twice_changes_nothing_more() -> None:
    model = Positions().eval()
    case = case_of(model, example(), "export")
    match = REMEDY.detect(case)
    assert isinstance(match, Match)
    want = outputs(model, args := example(7))
    original = Positions.forward
    with REMEDY.apply(case, match):
        once = Positions.forward
        assert once is not original
        with REMEDY.apply(case, match):
            assert Positions.forward is once
            for ours, theirs in zip(want, outputs(model, args), strict=True):
                assert ours.dtype == theirs.dtype
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert Positions.forward is original


def test_a_librarys_list_is_written_anew_too(tmp_path: Path, library: Library) -> None:
    model = library("        return x + torch.tensor(list(range(x.size(1))))\n")
    bounds = {"batch": (1, 3), "n": (2, 9)}
    result = fairway.export(model, ["x: float32[batch, n]"], tmp_path / "n.onnx", bounds=bounds, level="quick")
    assert (result.verdict, result.remedies) == ("verified", ("list_frozen",))
