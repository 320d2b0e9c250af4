"""An epsilon of 1e-8, as norms have it, and constants close to 1."""

from __future__ import annotations

import numpy as np
import torch
from harness import TRACE, applied, assert_parity, export, make_case, operators, run
from torch import nn

from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.small_constant_dropped import REMEDY

DIMS = [{0: "batch"}]
ZEROS = (torch.zeros(3, 4),)


class Normed(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        norm = x.norm(dim=-1, keepdim=True)
        return x / (norm + 1e-8), (1e-9 + norm).log(), norm * (1 - 4e-6)


class Plain(nn.Module):
    """Nothing to keep: exactly 0 and 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 0) * 1 / 1 - 0 + 1e-3


def make(batch: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 4, generator=torch.Generator().manual_seed(batch)),)


def test_a_row_of_zeros_is_not_a_number_without_it() -> None:
    exported = export(make_case(Normed(), make(3)), DIMS)
    assert np.isnan(run(exported, ZEROS)[0]).all()


def test_parity_holds_with_it() -> None:
    case = make_case(Normed(), make(3))
    exported = export(case, DIMS, REMEDY)
    assert case.used == {REMEDY.name}
    assert_parity(exported, Normed(), make(3), make(1), ZEROS, atol=1e-7)


def test_exact_ones_and_zeros_are_dropped_as_before() -> None:
    case = make_case(Plain(), make(3))
    exported = export(case, DIMS, REMEDY)
    assert [name for name in operators(exported) if name not in ("Constant", "Identity")] == ["Add"]
    assert (case.used, case.listed_if_used) == (set(), {REMEDY.name})


def test_it_is_refused_under_the_tracer() -> None:
    assert isinstance(REMEDY.detect(make_case(Normed(), make(3), TRACE)), Refusal)


def test_applying_it_twice_changes_nothing_more_and_is_undone() -> None:
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    original = SimplePatternMatcher._match_constant
    case = make_case(Normed(), make(3))
    with applied(case, REMEDY), applied(case, REMEDY):
        assert SimplePatternMatcher._match_constant is not original
    assert SimplePatternMatcher._match_constant is original
