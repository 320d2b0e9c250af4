"""Singular values and the eigenvalues of symmetric matrices, by Jacobi's rotations of columns, computed in double.

Each rotation makes two columns orthogonal, and the number of remaining errors squares with each sweep: 12 sweeps are
enough for a double at every size up to 256, and larger matrices are refused. A symmetric matrix plus its norm has no
negative eigenvalues, so its singular values are its eigenvalues plus the norm.

PyTorch promises neither the signs of singular vectors and eigenvectors, nor their choice among equal values, and these
are others here. A model whose outputs depend on them is not verified.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnxscript import graph, script
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    FAIRWAY_OPSET,
    KIND,
    GraphValue,
    Table,
    cast,
    count_up,
    make_ints,
    make_number,
)
from fairway.convert.translations.factors import complete_basis
from fairway.torch_internals import aten_linalg_eigh, aten_linalg_svd

SWEEP_COUNT = 12
MAX_SIDE = 256


@script(FAIRWAY_OPSET, op)
def _rotate_columns(
    matrix: GraphValue, basis: GraphValue, places: GraphValue, partners: GraphValue
) -> tuple[GraphValue, GraphValue]:
    """Rotate the columns of [batch, m, n] until they are orthogonal, and the basis [batch, n, n] with them.

    `partners` [steps, n] has, for each step and column, the column to rotate it with. A column that is its own partner
    stays.
    """

    @graph()
    def step(now: GraphValue, turned: GraphValue, partner: GraphValue) -> GraphValue:
        zero = op.CastLike(op.Constant(value_float=0.0), now)
        unit = op.CastLike(op.Constant(value_float=1.0), now)
        middle = op.Constant(value_ints=[1])
        other = op.Gather(now, partner, axis=2)
        squares = op.ReduceSum(op.Mul(now, now), middle, keepdims=1)
        theirs = op.Gather(squares, partner, axis=2)
        common = op.ReduceSum(op.Mul(now, other), middle, keepdims=1)
        still = op.Or(op.Equal(places, partner), op.Equal(common, zero))
        twice = op.Where(still, unit, op.Add(common, common))
        slope = op.Div(op.Sub(theirs, squares), twice)
        tied = op.Where(op.Less(places, partner), unit, op.Neg(unit))
        sign = op.Where(op.Equal(slope, zero), tied, op.Sign(slope))
        size = op.Add(op.Abs(slope), op.Sqrt(op.Add(op.Mul(slope, slope), unit)))
        tangent = op.Where(still, zero, op.Div(sign, size))
        cosine = op.Div(unit, op.Sqrt(op.Add(op.Mul(tangent, tangent), unit)))
        sine = op.Mul(cosine, tangent)
        after = op.Sub(op.Mul(cosine, now), op.Mul(sine, other))
        swung = op.Sub(op.Mul(cosine, turned), op.Mul(sine, op.Gather(turned, partner, axis=2)))
        return after, swung

    result, vectors = op.Scan(matrix, basis, partners, body=step, num_scan_inputs=1)
    return result, vectors


def list_partners(count: int) -> np.ndarray[GraphValue, GraphValue]:
    """Return the rounds of a tournament in which each column meets every other unit, once for each sweep."""
    players = count + count % 2
    rounds = []
    circle = list(range(players))
    for _ in range(players - 1):
        partner = list(range(count))
        for a, b in zip(circle[: players // 2], reversed(circle[players // 2 :]), strict=True):
            if a < count and b < count:
                partner[a], partner[b] = b, a
        rounds.append(partner)
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return np.array(rounds * SWEEP_COUNT, dtype=np.int64).reshape(-1, count)


def svd(
    A: GraphValue, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> tuple[GraphValue, GraphValue, GraphValue]:
    rows, columns = _read_sides(A)
    wide = columns > rows
    matrix = op.Reshape(cast(A, KIND.DOUBLE), make_ints([-1, rows, columns]))
    matrix = op.Transpose(matrix, perm=[0, 2, 1]) if wide else matrix
    count, length = min(rows, columns), max(rows, columns)
    values, left, right = _rotate(matrix, count)
    if not compute_uv:
        nothing = op.Expand(make_number(0.0, A), make_ints([0]))
        return nothing, _restore(values, A, count), nothing
    if full_matrices and length > count:
        left = complete_basis(left, make_ints([length]))
        kept = length
    else:
        kept = count
    left_vectors, right_vectors = (right, left) if wide else (left, right)
    left_count, right_count = (count, kept) if wide else (kept, count)
    return (
        _restore(left_vectors, A, rows, left_count),
        _restore(values, A, count),
        _restore(op.Transpose(right_vectors, perm=[0, 2, 1]), A, right_count, columns),
    )


def eigh(self: GraphValue, UPLO: str = "L", compute_v: bool = True) -> tuple[GraphValue, GraphValue]:
    side, _ = _read_sides(self)
    matrix = op.Reshape(cast(self, KIND.DOUBLE), make_ints([-1, side, side]))
    half = op.Trilu(matrix, upper=int(UPLO.upper() == "U"))
    eye = op.CastLike(op.Equal(count_up(make_ints([side])), op.Unsqueeze(count_up(make_ints([side])), [1])), matrix)
    diagonal = op.Mul(matrix, eye)
    matrix = op.Sub(op.Add(half, op.Transpose(half, perm=[0, 2, 1])), diagonal)
    norm = op.Sqrt(op.ReduceSum(op.Mul(matrix, matrix), [1, 2], keepdims=1))
    values, _, vectors = _rotate(op.Add(matrix, op.Mul(norm, eye)), side)
    values = op.Sub(values, op.Squeeze(norm, [2]))
    ascending = op.Slice(values, [-1], [-(2**31)], [1], [-1])
    if not compute_v:
        return _restore(ascending, self, side), op.Expand(make_number(0.0, self), make_ints([0]))
    vectors = op.Slice(vectors, [-1], [-(2**31)], [2], [-1])
    return _restore(ascending, self, side), _restore(vectors, self, side, side)


def _read_sides(A: GraphValue) -> tuple[int, int]:
    rows, columns = A.shape[-2], A.shape[-1]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise NotImplementedError("singular values and eigenvalues of a matrix with a dynamic side are not translated")
    if min(rows, columns) > MAX_SIDE:
        raise NotImplementedError(
            f"singular values and eigenvalues of matrices larger than {MAX_SIDE} are not translated, "
            f"and this one is {rows}×{columns}"
        )
    return rows, columns


def _rotate(matrix: GraphValue, count: int) -> tuple[GraphValue, GraphValue, GraphValue]:
    """Return descending singular values [batch, n], left vectors [batch, m, n] and right vectors [batch, n, n]."""
    places = count_up(make_ints([count]))
    eye = op.Cast(op.Equal(op.Unsqueeze(places, [1]), places), to=KIND.DOUBLE)
    basis = op.Expand(eye, op.Concat(op.Shape(matrix, end=1), make_ints([count, count]), axis=0))
    partners = op.Constant(value=ir.tensor(list_partners(count)))
    turned, vectors = _rotate_columns(matrix, basis, places, partners)
    lengths = op.Sqrt(op.ReduceSum(op.Mul(turned, turned), [1], keepdims=0))
    values, order = op.TopK(lengths, make_ints([count]), axis=1, largest=1, sorted=1)
    index = op.Unsqueeze(order, [1])
    turned = op.GatherElements(turned, op.Expand(index, op.Shape(turned)), axis=2)
    vectors = op.GatherElements(vectors, op.Expand(index, op.Shape(vectors)), axis=2)
    scale = op.Unsqueeze(values, [1])
    zero, unit = make_number(0.0, KIND.DOUBLE), make_number(1.0, KIND.DOUBLE)
    return values, op.Div(turned, op.Where(op.Equal(scale, zero), unit, scale)), vectors


def _restore(result: GraphValue, like: GraphValue, *sizes: int) -> GraphValue:
    shape = op.Concat(op.Shape(like, end=-2), make_ints(sizes), axis=0)
    return op.Cast(op.Reshape(result, shape), to=like.dtype)


TABLE: Table = {
    aten_linalg_svd: svd,
    aten_linalg_eigh: eigh,
}
