"""Experts looped over as far as they were hit: which ones is known by value only."""

from __future__ import annotations

import pytest
import torch
from harness import EXPORT, STRICT, TRACE, applied, assert_parity, export, make_case
from torch import nn

from fairway.convert.remedies.contract import Match, Refusal
from fairway.convert.remedies.hits_looped import REMEDY

DIMS = [{0: "tokens"}]


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(4, 5)
        self.experts = nn.ModuleDict({f"expert_{i}": nn.Linear(4, 4) for i in range(5)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2)
        mask = nn.functional.one_hot(chosen, 5).permute(2, 1, 0)
        total = torch.zeros_like(x)
        for hit in (mask.sum((-1, -2)) > 0).nonzero():
            if hit[0] == 5:
                continue
            place, token = torch.where(mask[hit].squeeze(0))
            found = self.experts[f"expert_{hit[0]}"](x[token]) * weight[token, place, None]
            total.index_add_(0, token, found)
        return total


class Rows(nn.Module):
    """A row whose own length varies: its places are no fixed number of steps."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[row[0]] for row in (x[:, 0] > -9).nonzero()])


def make(tokens: int) -> tuple[torch.Tensor]:
    return (torch.randn(tokens, 4, generator=torch.Generator().manual_seed(tokens)),)


def test_it_cannot_be_captured_without_it() -> None:
    with pytest.raises(Exception, match="data-dependent"):
        export(make_case(Experts().eval(), make(3)), DIMS)


def test_experts_that_the_example_did_not_hit_are_in_the_file() -> None:
    model = Experts().eval()
    case = make_case(model, make(1))
    exported = export(case, [{}], REMEDY)
    assert case.used == {REMEDY.name}
    other = [torch.randn(1, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(20)]
    assert_parity(exported, model, *[(x,) for x in other], atol=1e-6)


def test_parity_holds_for_other_sizes() -> None:
    model = Experts().eval()
    exported = export(make_case(model, make(3)), DIMS, REMEDY)
    assert_parity(exported, model, make(3), make(2), make(11), atol=1e-6)


def test_a_row_whose_length_varies_is_left_as_it_is() -> None:
    case = make_case(Rows(), make(3))
    with pytest.raises(Exception, match="data-dependent"):
        export(case, DIMS, REMEDY)
    assert case.used == set()


def test_it_is_refused_under_the_tracer_and_under_strict_capture() -> None:
    assert isinstance(REMEDY.detect(make_case(Experts(), make(3), TRACE)), Refusal)
    assert isinstance(REMEDY.detect(make_case(Experts(), make(3), STRICT)), Refusal)
    assert isinstance(REMEDY.detect(make_case(Experts(), make(3), EXPORT)), Match)


def test_applying_it_twice_changes_nothing_more_and_loops_are_as_before_afterwards() -> None:
    model = Experts().eval()
    case = make_case(model, make(1))
    hit = torch.tensor([1, 0, 1, 0])
    with applied(case, REMEDY):
        assert torch.allclose(model(*make(1)), Experts().eval()(*make(1)))
        with applied(case, REMEDY):
            assert [int(i) for i in hit.nonzero()] == [0, 1, 2, 3]
        assert [int(i) for i in hit.nonzero()] == [0, 1, 2, 3]
    assert [int(i) for i in hit.nonzero()] == [0, 2]
