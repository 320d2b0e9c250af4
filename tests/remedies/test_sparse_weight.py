"""Sparse tensors that a module holds, as attribute and as buffer."""

from __future__ import annotations

import pytest
import torch
from harness import applied, assert_parity, export, make_case
from torch import nn

from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.sparse_weight import REMEDY

DIMS = [{0: "batch"}]


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.randn(4, 4).relu().to_sparse()
        self.register_buffer("rows", torch.randn(4, 4).relu().to_sparse_csr())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.to_dense() + torch.sparse.mm(self.rows, x.t()).t()


def make(batch: int) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 4),)


def test_it_cannot_be_exported_without_it() -> None:
    with pytest.raises(Exception, match=r"[Ss]parse"):
        export(make_case(Sparse().eval(), make(3)), DIMS)


def test_the_file_agrees_with_the_sparse_model() -> None:
    model = Sparse().eval()
    exported = export(make_case(model, make(3)), DIMS, REMEDY)
    assert model.weight.is_sparse
    assert_parity(exported, model, make(3), make(1), atol=1e-5)


def test_it_is_refused_where_nothing_is_sparse() -> None:
    assert REMEDY.detect(make_case(nn.Linear(4, 4), make(3))) == Refusal("no module holds a sparse tensor")


def test_applying_it_twice_changes_nothing_more_and_all_is_sparse_again_afterwards() -> None:
    model = Sparse().eval()
    case = make_case(model, make(3))
    multiply = torch.sparse.mm
    match = REMEDY.detect(case)
    with applied(case, REMEDY):
        once = model.weight
        assert not once.is_sparse
        with REMEDY.apply(case, match):
            assert model.weight is once
    assert model.weight.is_sparse
    assert model.rows.layout == torch.sparse_csr
    assert torch.sparse.mm is multiply
