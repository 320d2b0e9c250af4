"""QR, LU, singular values and eigenvalues of symmetric matrices, over batches and, but for the last two, sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ours import Inputs, Trial

from fairway.convert.translations.rotations import list_partners


def unpacked(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.lu_unpack(*torch.linalg.lu_factor(a))


def reflected(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    factors = a[:, 0] * 0.3
    turned = torch.ormqr(a, factors, b), torch.ormqr(a, factors, b, transpose=True)
    return *turned, torch.ormqr(a, factors, b.mT, left=False)


FACTORS = {
    "qr": lambda a, b: tuple(torch.linalg.qr(a)),
    "complete qr": lambda a, b: tuple(torch.linalg.qr(a, mode="complete")),
    "r": lambda a, b: torch.linalg.qr(a, mode="r")[1],
    "qr of a wide matrix": lambda a, b: tuple(torch.linalg.qr(a.mT)),
    "reflectors": reflected,
    "product of reflectors": lambda a, b: torch.linalg.householder_product(a, a[:, 0] * 0.3),
    "lu": lambda a, b: tuple(torch.linalg.lu(a)),
    "lu of a wide matrix": lambda a, b: tuple(torch.linalg.lu(a.mT)),
    "unpacked lu": lambda a, b: unpacked(a),
    "lu solve": lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a.mT @ a), b[..., : a.shape[-1], :]),
    "lu solve from the right": lambda a, b: torch.linalg.lu_solve(
        *torch.linalg.lu_factor(a.mT @ a), b[..., : a.shape[-1], :].mT, left=False, adjoint=True
    ),
}


def invariant(factors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Return absolute values, which do not depend on the signs of vectors."""
    return tuple(factor.abs() for factor in factors)


def mended(factors: Any) -> torch.Tensor:
    left, values, right = factors
    return (left[..., : values.shape[-1]] * values[..., None, :]) @ right[..., : values.shape[-1], :]


VALUES = {
    "singular values": lambda a, b: torch.linalg.svdvals(a),
    "singular values of a wide matrix": lambda a, b: torch.linalg.svdvals(a.mT),
    "svd": lambda a, b: (*invariant(tuple(torch.linalg.svd(a, full_matrices=False))), mended(torch.linalg.svd(a))),
    "full svd": lambda a, b: torch.linalg.svd(a)[0] @ torch.linalg.svd(a)[0].mT,
    "svd of a wide matrix": lambda a, b: invariant(tuple(torch.linalg.svd(a.mT, full_matrices=False))),
    "eigenvalues": lambda a, b: torch.linalg.eigvalsh(a.mT @ a - 2 * torch.eye(4)),
    "eigenvectors": lambda a, b: invariant(tuple(torch.linalg.eigh(a.mT @ a, UPLO="U"))),
    "rank": lambda a, b: torch.linalg.matrix_rank(a @ torch.ones(4, 4)),
}


def matrices(batch: int, rows: int, columns: int) -> Inputs:
    generator = torch.Generator().manual_seed(batch + rows)
    shape = (batch, rows, columns)
    return torch.randn(shape, generator=generator), torch.randn(batch, rows, 2, generator=generator)


@pytest.fixture(scope="module")
def factors() -> Trial:
    return Trial(FACTORS, [matrices(3, 5, 4), matrices(1, 3, 2), matrices(2, 8, 7)])


@pytest.fixture(scope="module")
def values() -> Trial:
    return Trial(VALUES, [matrices(3, 6, 4), matrices(1, 6, 4), matrices(5, 6, 4)])


@pytest.mark.parametrize("name", FACTORS)
def test_factors_are_those_of_pytorch(factors: Trial, name: str) -> None:
    factors.check(name, tolerance=5e-4 if "solve" in name else 2e-5)


@pytest.mark.parametrize("name", VALUES)
def test_singular_values_and_eigenvalues_are_those_of_pytorch(values: Trial, name: str) -> None:
    values.check(name, tolerance=2e-5)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_every_column_meets_every_other_one_in_a_sweep(count: int) -> None:
    sweep = list_partners(count)[: max(count - 1 + count % 2, 1)]
    pairs = {(place, int(other)) for partners in sweep for place, other in enumerate(partners) if place != other}
    assert len(pairs) == count * (count - 1)
    assert all(partners[partners].tolist() == list(range(count)) for partners in sweep)


def test_a_matrix_with_a_dynamic_side_is_refused() -> None:
    trial = Trial({"": lambda a, b: torch.linalg.svdvals(a)}, [matrices(3, 6, 4), matrices(3, 7, 4)])
    with pytest.raises(torch.onnx.OnnxExporterError):
        assert trial.model
