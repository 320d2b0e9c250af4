"""Solving, inverting, slogdet and Cholesky, over batches and sizes; also matrices that only pivoting solves."""

from __future__ import annotations

import pytest
import torch
from ours import Inputs, Trial


def positive(a: torch.Tensor) -> torch.Tensor:
    return a @ a.mT + torch.eye(a.shape[-1])


FUNCTIONS = {
    "solve": lambda a, b: torch.linalg.solve(a, b),
    "solve from the right": lambda a, b: torch.linalg.solve(a, b.mT, left=False),
    "solve for a vector": lambda a, b: torch.linalg.solve(a, b[..., 0]),
    "solve without a batch": lambda a, b: torch.linalg.solve(a[0], b[0]),
    "solve one matrix for many": lambda a, b: torch.linalg.solve(a[0], b),
    "solve doubles": lambda a, b: torch.linalg.solve(a.double(), b.double()),
    "inv": lambda a, b: torch.linalg.inv(a),
    "inv of four dims": lambda a, b: torch.linalg.inv(a[None]),
    "slogdet": lambda a, b: tuple(torch.linalg.slogdet(a)),
    "cholesky": lambda a, b: torch.linalg.cholesky(positive(a)),
    "upper cholesky": lambda a, b: torch.linalg.cholesky(positive(a)[0], upper=True),
    "triangular": lambda a, b: torch.linalg.solve_triangular(positive(a), b, upper=False),
    "triangular from the right": lambda a, b: torch.linalg.solve_triangular(positive(a), b.mT, upper=True, left=False),
    "unitriangular": lambda a, b: torch.linalg.solve_triangular(a * 0.1, b, upper=True, unitriangular=True),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(positive(a))),
    "cholesky_inverse": lambda a, b: torch.cholesky_inverse(torch.linalg.cholesky(positive(a))),
}


def matrices(batch: int, side: int, columns: int) -> Inputs:
    generator = torch.Generator().manual_seed(batch + side)
    a = torch.randn(batch, side, side, generator=generator) + 4 * torch.eye(side)
    return a, torch.randn(batch, side, columns, generator=generator)


@pytest.fixture(scope="module")
def trial() -> Trial:
    crossed = torch.tensor([[[0.0, 1, 0], [0, 0, 2], [3, 0, 0]], [[0, 0, 1], [0, 2, 0], [4, 0, 0]]])
    points = [matrices(3, 4, 2), matrices(1, 2, 3), matrices(2, 7, 2), matrices(5, 1, 4)]
    return Trial(FUNCTIONS, [*points, (crossed, matrices(2, 3, 2)[1])])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_gives_what_pytorch_gives(trial: Trial, name: str) -> None:
    trial.check(name, tolerance=2e-5)
