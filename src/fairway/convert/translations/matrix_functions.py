"""Matrix exponential, pseudoinverse and least squares, written in torch with operators that are translated."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fairway.torch_internals import OpOverload, Untyped

_TAYLOR_DEGREE = 16
"""Enough for a double if the norm is at most a half: 0.5¹⁷ / 17! is 2e-20."""

_SQUARING_COUNT = 12
"""Enough for norms up to 2048; the exponential of a norm above 709 may be infinite."""


def matrix_exp(A: torch.Tensor) -> torch.Tensor:
    """Scale by a power of two, sum the Taylor series, and square as often."""
    matrix = A.double()
    norm = matrix.abs().sum(-2).amax(-1)
    count = torch.ceil(torch.log2(norm.clamp(min=1e-30)) + 1).clamp(0, _SQUARING_COUNT)
    matrix = matrix / torch.exp2(count)[..., None, None]
    eye = torch.eye(A.shape[-1], dtype=torch.double, device=A.device)
    total = eye + matrix / _TAYLOR_DEGREE
    for k in range(_TAYLOR_DEGREE - 1, 0, -1):
        total = eye + matrix @ total / k
    for k in range(_SQUARING_COUNT):
        total = torch.where((count > k)[..., None, None], total @ total, total)
    return total.to(A.dtype)


def pinv(
    self: torch.Tensor,
    *,
    atol: torch.Tensor | float | None = None,
    rtol: torch.Tensor | float | None = None,
    hermitian: bool = False,
) -> torch.Tensor:
    if hermitian:
        signed, vectors = torch.linalg.eigh(self)
        values, order = signed.abs().sort(descending=True)
        vectors = vectors.gather(-1, order[..., None, :].expand(vectors.shape))
        left, right = vectors * torch.sign(signed.gather(-1, order))[..., None, :], vectors.mT
    else:
        left, values, right = torch.linalg.svd(self, full_matrices=False)
    largest = values[..., :1]
    if rtol is None:
        rtol = torch.finfo(self.dtype).eps * max(self.shape[-2:]) if _is_zero(atol) else 0.0
    cut = _widen(rtol) * largest
    if atol is not None:
        cut = torch.maximum(cut, _widen(atol) * torch.ones_like(largest))
    is_kept = values > cut
    inverse = torch.where(is_kept, 1 / torch.where(is_kept, values, 1.0), 0.0)
    result: torch.Tensor = (right.mT * inverse[..., None, :]) @ left.mT
    return result


def _is_zero(tolerance: torch.Tensor | float | None) -> bool:
    return tolerance is None or (isinstance(tolerance, int | float) and tolerance == 0)


def _widen(tolerance: torch.Tensor | float) -> torch.Tensor | float:
    return tolerance[..., None] if isinstance(tolerance, torch.Tensor) else tolerance


def pinv_by_tolerances(
    self: torch.Tensor, atol: float | None = None, rtol: float | None = None, hermitian: bool = False
) -> torch.Tensor:
    return pinv(self, atol=atol, rtol=rtol, hermitian=hermitian)


def pinv_by_ratio(self: torch.Tensor, rcond: torch.Tensor | float = 1e-15, hermitian: bool = False) -> torch.Tensor:
    return pinv(self, atol=0.0, rtol=rcond, hermitian=hermitian)


def lstsq(
    self: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Untyped, ...]:
    """Multiply by the pseudoinverse. PyTorch's solvers leave small singular values out by the same ratio."""
    rows, columns = self.shape[-2:]
    is_vector = b.dim() == self.dim() - 1 or b.dim() == 1
    right = b[..., None] if is_vector else b
    ratio = torch.finfo(self.dtype).eps * max(rows, columns) if rcond is None else rcond
    wide = self.double()
    left, values, turned = torch.linalg.svd(wide, full_matrices=False)
    is_kept = values > ratio * values[..., :1]
    inverse = torch.where(is_kept, 1 / torch.where(is_kept, values, 1.0), 0.0)
    solution = turned.mT @ (inverse[..., None] * (left.mT @ right.double()))
    empty = self.new_empty([0])
    residuals = empty
    if driver != "gelsy" and driver is not None and rows > columns:
        residuals = ((wide @ solution - right.double()) ** 2).sum(-2).to(self.dtype)
    solution = solution.to(self.dtype)
    rank = is_kept.sum(-1) if driver != "gels" else torch.empty([0], dtype=torch.int64)
    singular = values.to(self.dtype) if driver in ("gelsd", "gelss") else empty
    return solution[..., 0] if is_vector else solution, residuals, rank, singular


_ATEN = torch.ops.aten

DECOMPOSITIONS: dict[OpOverload, Callable[..., Untyped]] = {
    _ATEN.linalg_matrix_exp.default: matrix_exp,
    _ATEN.linalg_pinv.atol_rtol_tensor: pinv,
    _ATEN.linalg_pinv.atol_rtol_float: pinv_by_tolerances,
    _ATEN.linalg_pinv.default: pinv_by_ratio,
    _ATEN.linalg_pinv.rcond_tensor: pinv_by_ratio,
}
"""Functions of torch by the operator that they compute."""
