"""Solving, inverting, slogdet and Cholesky, one ONNX Scan over the columns each.

ONNX has MatMul and Det, torch translates no more. Gauss and Jordan's elimination picks its pivot among the rows left,
as LAPACK does, so what PyTorch can solve is solved here; sizes and batches stay open. A singular matrix, which PyTorch
refuses, gives whatever the elimination leaves. `info`, pivots and LU, which only a backward pass or a check reads, are
placeholders.

Left out: eigenvalues and singular values (and pinv, lstsq and the matrix norms made of them) are iterations without a
fixed number of steps; matrix_exp chooses its steps by the matrix' norm; QR was not asked for by any model seen.
"""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import graph, script
from onnxscript import opset18 as op

from fairway.convert.translations.builders import KIND, OWN, Table, counted, ints, number, size, typed


@script(OWN, op)
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


@script(OWN, op)
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


def solve_ex(A: Any, B: Any, left: bool = True, check_errors: bool = False) -> tuple[Any, Any, Any, Any]:
    vector = len(B.shape) == 1 or (len(B.shape) == len(A.shape) - 1 and list(B.shape) == list(A.shape)[:-1])
    if vector:
        solved = op.Squeeze(_solved(A, op.Unsqueeze(B, [-1]), len(B.shape) + 1), [-1])
    elif left:
        solved = _solved(A, B, len(B.shape))
    else:  # X A = B is Aᵀ Xᵀ = Bᵀ
        rank = max(len(A.shape), len(B.shape))
        turned = typed(_turned(A, len(A.shape)), A)
        solved = _turned(_solved(turned, _turned(B, len(B.shape)), len(B.shape), len(A.shape)), rank)
    return solved, op.Identity(A), _zeros(A, 1), _zeros(A, 2)


def solve(A: Any, B: Any, left: bool = True) -> Any:
    return solve_ex(A, B, left)[0]


def inv_ex(A: Any, check_errors: bool = False) -> tuple[Any, Any]:
    return _solved(A, _eye(A), len(A.shape)), _zeros(A, 2)


def inv(A: Any) -> Any:
    return inv_ex(A)[0]


def slogdet(A: Any) -> tuple[Any, Any, Any, Any]:
    _, pivots, swaps = _eliminated(_flat(A), counted(size(A, -1)))
    sign = op.ReduceProd(op.Mul(op.Sign(pivots), swaps), [0], keepdims=0)
    logarithm = op.ReduceSum(op.Log(op.Abs(pivots)), [0], keepdims=0)
    batch = op.Shape(A, end=-2)
    return op.Reshape(sign, batch), op.Reshape(logarithm, batch), op.Identity(A), _zeros(A, 1)


def cholesky_ex(self: Any, upper: bool = False, check_errors: bool = False) -> tuple[Any, Any]:
    columns = _columns(_flat(self), counted(size(self, -1)))
    lower = op.Transpose(columns, perm=[1, 0, 2] if upper else [1, 2, 0])
    return op.Reshape(lower, op.Shape(self)), _zeros(self, 2)


def cholesky(self: Any, upper: bool = False) -> Any:
    return cholesky_ex(self, upper)[0]


def solve_triangular(self: Any, B: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    half = typed(op.Trilu(self, upper=int(upper)), self)
    half.shape = self.shape
    if unitriangular:
        half = typed(op.Where(op.Cast(_eye(self), to=KIND.BOOL), number(1.0, self), half), self)
        half.shape = self.shape
    if left:
        return _solved(half, B, len(B.shape))
    turned = typed(_turned(half, len(self.shape)), self)
    rank = max(len(self.shape), len(B.shape))
    return _turned(_solved(turned, _turned(B, len(B.shape)), len(B.shape), len(self.shape)), rank)


def cholesky_solve(self: Any, input2: Any, upper: bool = False) -> Any:
    """What stands to the right comes first: B, then the factor."""
    turned = typed(_turned(input2, len(input2.shape)), input2)
    first, second = (turned, input2) if upper else (input2, turned)
    rank, sides = len(input2.shape), len(self.shape)
    return _solved(second, _solved(first, self, sides, rank), max(sides, rank), rank)


def cholesky_inverse(self: Any, upper: bool = False) -> Any:
    eye = typed(_eye(self), self)
    eye.shape = self.shape
    return cholesky_solve(eye, self, upper)


def _solved(A: Any, B: Any, rank_of_b: int, rank_of_a: int | None = None) -> Any:
    """A⁻¹ B, with the batch dims of both."""
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
    whole = op.Reshape(both, op.Concat(ints([-1]), side, op.Add(side, columns), axis=0))
    after, _, _ = _eliminated(whole, counted(side))
    solved = op.Slice(after, side, [2**31], [2])
    return op.Reshape(solved, op.Concat(batch, side, columns, axis=0))


def _flat(A: Any) -> Any:
    """[batch, n, n], of any number of batch dims."""
    return op.Reshape(A, op.Concat(ints([-1]), op.Shape(A, start=-2), axis=0))


def _eye(A: Any) -> Any:
    here = counted(size(A, -1))
    return op.CastLike(op.Equal(here, op.Unsqueeze(here, [1])), A)


def _turned(value: Any, rank: int) -> Any:
    return op.Transpose(value, perm=[*range(rank - 2), rank - 1, rank - 2])


def _zeros(A: Any, fewer: int) -> Any:
    """int32 zeros in the shape of A without its last dims."""
    return op.Expand(number(0, KIND.INT32), op.Shape(A, end=-fewer))


TABLE: Table = {
    # Those with _ex are also what torch.linalg's own are made of, but there they come with a check of `info`.
    torch.ops.aten.linalg_solve.default: solve,
    torch.ops.aten._linalg_solve_ex.default: solve_ex,
    torch.ops.aten.linalg_inv.default: inv,
    torch.ops.aten.linalg_inv_ex.default: inv_ex,
    torch.ops.aten._linalg_slogdet.default: slogdet,
    torch.ops.aten.linalg_cholesky.default: cholesky,
    torch.ops.aten.linalg_cholesky_ex.default: cholesky_ex,
    torch.ops.aten.linalg_solve_triangular.default: solve_triangular,
    torch.ops.aten.cholesky_solve.default: cholesky_solve,
    torch.ops.aten.cholesky_inverse.default: cholesky_inverse,
}
