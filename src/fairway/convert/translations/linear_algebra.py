"""Solving, inverting, slogdet and Cholesky, one ONNX Scan over the columns each.

ONNX has MatMul and Det, and torch translates only these. Gauss-Jordan elimination picks its pivot among the remaining
rows, as LAPACK does, so every system that PyTorch solves is solved here, and sizes and batches stay dynamic. For a
singular matrix, which PyTorch refuses, the result is undefined. `info`, pivots and LU are placeholders, since only a
backward pass or a check reads them.

QR and LU are in `factors`, singular values and eigenvalues of symmetric matrices in `rotations`. Not included: the
eigenvalues of other matrices, which LAPACK returns in no fixed order, complex matrices, and LDL.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from onnxscript import graph, script
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    FAIRWAY_OPSET,
    KIND,
    GraphValue,
    Table,
    count_up,
    get_size,
    make_ints,
    make_number,
    set_type,
)
from fairway.torch_internals import aten_linalg_slogdet, aten_linalg_solve_ex


@script(FAIRWAY_OPSET, op)
def _eliminated(wide: Any, places: Any) -> tuple[Any, Any, Any]:
    """The matrix [batch, n, n + m] after n steps, the pivots [n, batch], and -1 for each swap of rows."""

    @graph()
    def step(now: Any, k: Any) -> Any:
        zero = op.CastLike(op.Constant(value_float=0.0), now)
        one = op.CastLike(op.Constant(value_float=1.0), now)
        rows = op.Unsqueeze(places, op.Constant(value_ints=[0, 2]))
        last = op.Constant(value_ints=[2])
        middle = op.Constant(value_ints=[1])
        column = op.Unsqueeze(op.Gather(now, k, axis=2), last)
        left = op.Where(op.Less(rows, k), op.Neg(one), op.Abs(column))
        pick = op.ArgMax(left, axis=1, keepdims=1)
        picked = op.Equal(rows, pick)
        upper = op.Unsqueeze(op.Gather(now, k, axis=1), middle)
        lower = op.ReduceSum(op.Where(picked, now, zero), middle, keepdims=1)
        swapped = op.Where(picked, upper, now)
        pivot = op.Unsqueeze(op.Gather(lower, k, axis=2), last)
        scaled = op.Div(lower, op.Where(op.Equal(pivot, zero), one, pivot))
        factor = op.Unsqueeze(op.Gather(swapped, k, axis=2), last)
        after = op.Where(op.Equal(rows, k), scaled, op.Sub(swapped, op.Mul(factor, scaled)))
        sign = op.Where(op.Equal(pick, k), one, op.Neg(one))
        inner = op.Constant(value_ints=[1, 2])
        return after, op.Squeeze(pivot, inner), op.Squeeze(sign, inner)

    result, pivots, signs = op.Scan(wide, places, body=step, num_scan_inputs=1)
    return result, pivots, signs


@script(FAIRWAY_OPSET, op)
def _columns(matrix: Any, places: Any) -> Any:
    """Cholesky's columns, [n, batch, n]."""

    @graph()
    def step(now: Any, k: Any) -> Any:
        zero = op.CastLike(op.Constant(value_float=0.0), now)
        last = op.Constant(value_ints=[2])
        middle = op.Constant(value_ints=[1])
        column = op.Gather(now, k, axis=2)
        root = op.Unsqueeze(op.Sqrt(op.Gather(column, k, axis=1)), middle)
        kept = op.Where(op.Less(places, k), zero, op.Div(column, root))
        after = op.Sub(now, op.Mul(op.Unsqueeze(kept, last), op.Unsqueeze(kept, middle)))
        return after, op.Identity(kept)

    _, columns = op.Scan(matrix, places, body=step, num_scan_inputs=1)
    return columns


def solve_ex(
    A: GraphValue, B: GraphValue, left: bool = True, check_errors: bool = False
) -> tuple[GraphValue, GraphValue, GraphValue, GraphValue]:
    vector = len(B.shape) == 1 or (len(B.shape) == len(A.shape) - 1 and list(B.shape) == list(A.shape)[:-1])
    if vector:
        solved = op.Squeeze(solve_matrices(A, op.Unsqueeze(B, [-1]), len(B.shape) + 1), [-1])
    elif left:
        solved = solve_matrices(A, B, len(B.shape))
    else:  # X A = B is Aᵀ Xᵀ = Bᵀ
        rank = max(len(A.shape), len(B.shape))
        turned = set_type(_transpose(A, len(A.shape)), A)
        solved = _transpose(solve_matrices(turned, _transpose(B, len(B.shape)), len(B.shape), len(A.shape)), rank)
    return solved, op.Identity(A), _make_zeros(A, 1), _make_zeros(A, 2)


def solve(A: GraphValue, B: GraphValue, left: bool = True) -> GraphValue:
    return solve_ex(A, B, left)[0]


def inv_ex(A: GraphValue, check_errors: bool = False) -> tuple[GraphValue, GraphValue]:
    return solve_matrices(A, _make_identity(A), len(A.shape)), _make_zeros(A, 2)


def inv(A: GraphValue) -> GraphValue:
    return inv_ex(A)[0]


def slogdet(A: GraphValue) -> tuple[GraphValue, GraphValue, GraphValue, GraphValue]:
    _, pivots, swaps = _eliminated(_flatten_batch(A), count_up(get_size(A, -1)))
    sign = op.ReduceProd(op.Mul(op.Sign(pivots), swaps), [0], keepdims=0)
    logarithm = op.ReduceSum(op.Log(op.Abs(pivots)), [0], keepdims=0)
    batch = op.Shape(A, end=-2)
    return op.Reshape(sign, batch), op.Reshape(logarithm, batch), op.Identity(A), _make_zeros(A, 1)


def cholesky_ex(self: GraphValue, upper: bool = False, check_errors: bool = False) -> tuple[GraphValue, GraphValue]:
    columns = _columns(_flatten_batch(self), count_up(get_size(self, -1)))
    lower = op.Transpose(columns, perm=[1, 0, 2] if upper else [1, 2, 0])
    return op.Reshape(lower, op.Shape(self)), _make_zeros(self, 2)


def cholesky(self: GraphValue, upper: bool = False) -> GraphValue:
    return cholesky_ex(self, upper)[0]


def triangular_solve(
    self: GraphValue, A: GraphValue, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[GraphValue, GraphValue]:
    """Solve as torch.triangular_solve does, which has the right side first."""
    if not transpose:
        return solve_triangular(A, self, upper, unitriangular=unitriangular), op.Identity(A)
    turned = set_type(_transpose(A, len(A.shape)), A)
    turned.shape = ir.Shape([*A.shape[:-2], A.shape[-1], A.shape[-2]])
    return solve_triangular(turned, self, not upper, unitriangular=unitriangular), op.Identity(A)


def solve_triangular(
    self: GraphValue, B: GraphValue, upper: bool, left: bool = True, unitriangular: bool = False
) -> GraphValue:
    half = set_type(op.Trilu(self, upper=int(upper)), self)
    half.shape = self.shape
    if unitriangular:
        half = set_type(op.Where(op.Cast(_make_identity(self), to=KIND.BOOL), make_number(1.0, self), half), self)
        half.shape = self.shape
    if left:
        return solve_matrices(half, B, len(B.shape))
    turned = set_type(_transpose(half, len(self.shape)), self)
    rank = max(len(self.shape), len(B.shape))
    return _transpose(solve_matrices(turned, _transpose(B, len(B.shape)), len(B.shape), len(self.shape)), rank)


def cholesky_solve(self: GraphValue, input2: GraphValue, upper: bool = False) -> GraphValue:
    """Solve with the two factors, the right one first."""
    turned = set_type(_transpose(input2, len(input2.shape)), input2)
    first, second = (turned, input2) if upper else (input2, turned)
    rank, sides = len(input2.shape), len(self.shape)
    return solve_matrices(second, solve_matrices(first, self, sides, rank), max(sides, rank), rank)


def cholesky_inverse(self: GraphValue, upper: bool = False) -> GraphValue:
    eye = set_type(_make_identity(self), self)
    eye.shape = self.shape
    return cholesky_solve(eye, self, upper)


def solve_matrices(A: GraphValue, B: GraphValue, rank_of_b: int, rank_of_a: int | None = None) -> GraphValue:
    """Return A⁻¹ B, with the batch dims of both."""
    rank = max(rank_of_a or len(A.shape), rank_of_b)
    corner = [0, 0], [1, 1], [-2, -1]
    batch = op.Slice(op.Shape(op.Add(op.Slice(A, *corner), op.Slice(B, *corner))), [0], [-2], [0])
    side = op.Slice(op.Shape(A), [-1], [2**31], [0])
    columns = op.Slice(op.Shape(B), [-1], [2**31], [0])
    both = op.Concat(
        op.Expand(A, op.Concat(batch, side, side, axis=0)),
        op.Expand(B, op.Concat(batch, side, columns, axis=0)),
        axis=rank - 1,
    )
    augmented = op.Reshape(both, op.Concat(make_ints([-1]), side, op.Add(side, columns), axis=0))
    after, _, _ = _eliminated(augmented, count_up(side))
    solved = op.Slice(after, side, [2**31], [2])
    return op.Reshape(solved, op.Concat(batch, side, columns, axis=0))


def _flatten_batch(A: GraphValue) -> GraphValue:
    """Return [batch, n, n] from any number of batch dims."""
    return op.Reshape(A, op.Concat(make_ints([-1]), op.Shape(A, start=-2), axis=0))


def _make_identity(A: GraphValue) -> GraphValue:
    here = count_up(get_size(A, -1))
    return op.CastLike(op.Equal(here, op.Unsqueeze(here, [1])), A)


def _transpose(value: GraphValue, rank: int) -> GraphValue:
    return op.Transpose(value, perm=[*range(rank - 2), rank - 1, rank - 2])


def _make_zeros(A: GraphValue, fewer: int) -> GraphValue:
    """Return int32 zeros in the shape of A without its last dims."""
    return op.Expand(make_number(0, KIND.INT32), op.Shape(A, end=-fewer))


TABLE: Table = {
    # torch.linalg's functions are made of those with _ex too, but with a check of `info`.
    torch.ops.aten.linalg_solve.default: solve,
    aten_linalg_solve_ex: solve_ex,
    torch.ops.aten.linalg_inv.default: inv,
    torch.ops.aten.linalg_inv_ex.default: inv_ex,
    aten_linalg_slogdet: slogdet,
    torch.ops.aten.linalg_cholesky.default: cholesky,
    torch.ops.aten.linalg_cholesky_ex.default: cholesky_ex,
    torch.ops.aten.cholesky.default: cholesky,
    torch.ops.aten.triangular_solve.default: triangular_solve,
    torch.ops.aten.linalg_solve_triangular.default: solve_triangular,
    torch.ops.aten.cholesky_solve.default: cholesky_solve,
    torch.ops.aten.cholesky_inverse.default: cholesky_inverse,
}
