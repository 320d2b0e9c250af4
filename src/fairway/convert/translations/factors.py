"""QR by Householder's reflections and LU with pivoting, one ONNX Scan over the columns each, computed in double.

Both choose signs and pivots as LAPACK does, so the factors are those of PyTorch, and sizes and batches stay dynamic.
"""

from __future__ import annotations

import torch
from onnxscript import graph, script
from onnxscript import opset18 as op

from fairway.convert.translations.builders import (
    FAIRWAY_OPSET,
    KIND,
    GraphValue,
    Table,
    cast,
    count_up,
    get_size,
    make_ints,
    make_number,
    set_type,
)
from fairway.convert.translations.linear_algebra import solve_matrices


@script(FAIRWAY_OPSET, op)
def _reflect_columns(
    matrix: GraphValue, rows: GraphValue, steps: GraphValue
) -> tuple[GraphValue, GraphValue, GraphValue]:
    """The matrix [batch, m, n] after each reflection, the reflectors [k, batch, m], and their factors [k, batch]."""

    @graph()
    def step(now: GraphValue, k: GraphValue) -> GraphValue:
        zero = op.CastLike(op.Constant(value_float=0.0), now)
        unit = op.CastLike(op.Constant(value_float=1.0), now)
        middle = op.Constant(value_ints=[1])
        last = op.Constant(value_ints=[2])
        column = op.Gather(now, k, axis=2)
        here = op.Equal(rows, k)
        tail = op.Where(op.Greater(rows, k), column, zero)
        rest = op.ReduceSum(op.Mul(tail, tail), middle, keepdims=1)
        head = op.ReduceSum(op.Where(here, column, zero), middle, keepdims=1)
        length = op.Sqrt(op.Add(op.Mul(head, head), rest))
        signed = op.Where(op.Less(head, zero), length, op.Neg(length))
        done = op.Equal(rest, zero)
        factor = op.Where(done, zero, op.Div(op.Sub(signed, head), op.Where(done, unit, signed)))
        scaled = op.Div(tail, op.Where(done, unit, op.Sub(head, signed)))
        reflector = op.Where(here, unit, scaled)
        wide = op.Unsqueeze(reflector, last)
        shadow = op.ReduceSum(op.Mul(wide, now), middle, keepdims=1)
        after = op.Sub(now, op.Mul(op.Unsqueeze(factor, last), op.Mul(wide, shadow)))
        return after, op.Identity(reflector), op.Squeeze(factor, middle)

    result, reflectors, factors = op.Scan(matrix, steps, body=step, num_scan_inputs=1)
    return result, reflectors, factors


@script(FAIRWAY_OPSET, op)
def _apply_reflectors(start: GraphValue, reflectors: GraphValue, factors: GraphValue) -> GraphValue:
    """Reflect the columns of [batch, m, c] by each reflector in turn."""

    @graph()
    def step(now: GraphValue, reflector: GraphValue, factor: GraphValue) -> GraphValue:
        wide = op.Unsqueeze(reflector, op.Constant(value_ints=[2]))
        shadow = op.ReduceSum(op.Mul(wide, now), op.Constant(value_ints=[1]), keepdims=1)
        return op.Sub(now, op.Mul(op.Unsqueeze(factor, op.Constant(value_ints=[1, 2])), op.Mul(wide, shadow)))

    result = op.Scan(start, reflectors, factors, body=step, num_scan_inputs=2)
    return result


@script(FAIRWAY_OPSET, op)
def _pivot_columns(
    matrix: GraphValue, rows: GraphValue, columns: GraphValue, steps: GraphValue, is_free: GraphValue
) -> tuple[GraphValue, GraphValue]:
    """The factors L and U in one matrix [batch, m, n], and the row picked at each step, [k, batch]."""

    @graph()
    def step(now: GraphValue, k: GraphValue) -> GraphValue:
        zero = op.CastLike(op.Constant(value_float=0.0), now)
        unit = op.CastLike(op.Constant(value_float=1.0), now)
        middle = op.Constant(value_ints=[1])
        last = op.Constant(value_ints=[2])
        tall = op.Unsqueeze(rows, op.Constant(value_ints=[0, 2]))
        column = op.Gather(now, k, axis=2)
        left = op.Where(op.Less(rows, k), op.Neg(unit), op.Abs(column))
        pick = op.Where(is_free, op.ArgMax(left, axis=1, keepdims=1), op.Unsqueeze(k, op.Constant(value_ints=[0, 1])))
        picked = op.Equal(tall, op.Unsqueeze(pick, last))
        upper = op.Unsqueeze(op.Gather(now, k, axis=1), middle)
        lower = op.ReduceSum(op.Where(picked, now, zero), middle, keepdims=1)
        swapped = op.Where(op.Equal(tall, k), lower, op.Where(picked, upper, now))
        pivot = op.Unsqueeze(op.Gather(lower, k, axis=2), last)
        beside = op.Unsqueeze(op.Gather(swapped, k, axis=2), last)
        factor = op.Div(beside, op.Where(op.Equal(pivot, zero), unit, pivot))
        below = op.Greater(tall, k)
        reduced = op.Sub(swapped, op.Mul(factor, lower))
        here = op.Equal(columns, k)
        after = op.Where(below, op.Where(here, factor, op.Where(op.Less(columns, k), swapped, reduced)), swapped)
        return after, op.Squeeze(pick, middle)

    result, picks = op.Scan(matrix, steps, body=step, num_scan_inputs=1)
    return result, picks


@script(FAIRWAY_OPSET, op)
def _follow_row_swaps(start: GraphValue, rows: GraphValue, picks: GraphValue, steps: GraphValue) -> GraphValue:
    """The rows' old places, [batch, m], after the swaps."""

    @graph()
    def step(now: GraphValue, pick: GraphValue, k: GraphValue) -> GraphValue:
        picked = op.Equal(rows, op.Unsqueeze(pick, op.Constant(value_ints=[1])))
        upper = op.Unsqueeze(op.Gather(now, k, axis=1), op.Constant(value_ints=[1]))
        lower = op.ReduceSum(op.Where(picked, now, op.Constant(value_int=0)), op.Constant(value_ints=[1]), keepdims=1)
        return op.Where(op.Equal(rows, k), lower, op.Where(picked, upper, now))

    result = op.Scan(start, picks, steps, body=step, num_scan_inputs=2)
    return result


def qr(A: GraphValue, mode: str = "reduced") -> tuple[GraphValue, GraphValue]:
    m, n = get_size(A, -2), get_size(A, -1)
    least = op.Min(m, n)
    after, reflectors, factors = _reflect(A)
    kept = m if mode == "complete" else least
    upper = op.Trilu(op.Slice(after, [0], kept, [1]), upper=1)
    if mode == "r":
        return op.Expand(make_number(0.0, A), make_ints([0])), _restore(upper, A, kept, n)
    return _restore(_make_q(reflectors, factors, m, kept), A, m, kept), _restore(upper, A, kept, n)


def geqrf(self: GraphValue) -> tuple[GraphValue, GraphValue]:
    m, n = get_size(self, -2), get_size(self, -1)
    after, reflectors, factors = _reflect(self)
    # The reflectors are below the diagonal; where there are fewer of them than columns, nothing is.
    below = op.Transpose(reflectors, perm=[1, 2, 0])
    missing = op.Concat(make_ints([0, 0, 0, 0, 0]), op.Sub(n, op.Min(m, n)), axis=0)
    below = op.Pad(below, missing, make_number(0.0, KIND.DOUBLE))
    strictly_below = op.Sub(below, op.Trilu(below, upper=1))
    both = op.Add(op.Trilu(after, upper=1), strictly_below)
    return _restore(both, self, m, n), _restore_batch(op.Transpose(factors, perm=[1, 0]), self, op.Min(m, n))


def householder_product(self: GraphValue, tau: GraphValue) -> GraphValue:
    m, n = get_size(self, -2), get_size(self, -1)
    return _restore(_make_q(*_read_reflectors(self, tau), m, n), self, m, n)


def ormqr(
    self: GraphValue, input2: GraphValue, input3: GraphValue, left: bool = True, transpose: bool = False
) -> GraphValue:
    """Multiply by the full Q of reflectors. From the right, (C Q)ᵀ is Qᵀ Cᵀ."""
    reflectors, factors = _read_reflectors(self, input2)
    start = _flatten(cast(input3, KIND.DOUBLE))
    if not left:
        start = op.Transpose(start, perm=[0, 2, 1])
    if left != transpose:
        reflectors, factors = _reverse(reflectors), _reverse(factors)
    result = _apply_reflectors(start, reflectors, factors)
    if not left:
        result = op.Transpose(result, perm=[0, 2, 1])
    return _restore(result, input3, get_size(input3, -2), get_size(input3, -1))


def lu_factor_ex(
    A: GraphValue, pivot: bool = True, check_errors: bool = False
) -> tuple[GraphValue, GraphValue, GraphValue]:
    m, n = get_size(A, -2), get_size(A, -1)
    packed, picks = _pivot(A, pivot)
    pivots = op.Cast(op.Add(op.Transpose(picks, perm=[1, 0]), make_ints([1])), to=KIND.INT32)
    info = op.Expand(make_number(0, KIND.INT32), op.Shape(A, end=-2))
    return _restore(packed, A, m, n), _restore_batch(pivots, A, op.Min(m, n), KIND.INT32), info


def lu_factor(A: GraphValue, pivot: bool = True) -> tuple[GraphValue, GraphValue]:
    return lu_factor_ex(A, pivot)[:2]


def lu(A: GraphValue, pivot: bool = True) -> tuple[GraphValue, GraphValue, GraphValue]:
    m, n = get_size(A, -2), get_size(A, -1)
    packed, picks = _pivot(A, pivot)
    places = _follow_swaps(picks, m)
    permutation = (
        _restore(_make_permutation(places), A, m, m) if pivot else op.Expand(make_number(0.0, A), make_ints([0]))
    )
    least = op.Min(m, n)
    return (
        permutation,
        _restore(_get_lower(packed, least), A, m, least),
        _restore(_get_upper(packed, least), A, least, n),
    )


def lu_unpack(
    LU_data: GraphValue, LU_pivots: GraphValue, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[GraphValue, GraphValue, GraphValue]:
    m, n = get_size(LU_data, -2), get_size(LU_data, -1)
    least, nothing = op.Min(m, n), op.Expand(make_number(0.0, LU_data), make_ints([0]))
    permutation = lower = upper = nothing
    if unpack_pivots:
        places = _follow_swaps(_read_pivots(LU_pivots), m)
        permutation = _restore(_make_permutation(places), LU_data, m, m)
    if unpack_data:
        packed = _flatten(cast(LU_data, KIND.DOUBLE))
        lower = _restore(_get_lower(packed, least), LU_data, m, least)
        upper = _restore(_get_upper(packed, least), LU_data, least, n)
    return permutation, lower, upper


def lu_solve(LU: GraphValue, pivots: GraphValue, B: GraphValue, left: bool = True, adjoint: bool = False) -> GraphValue:
    """Multiply the factors, and solve with the product."""
    side = get_size(LU, -1)
    packed = _flatten(cast(LU, KIND.DOUBLE))
    permutation = _make_permutation(_follow_swaps(_read_pivots(pivots), side))
    product = op.MatMul(permutation, op.MatMul(_get_lower(packed, side), _get_upper(packed, side)))
    rank = len(LU.shape)
    matrix = set_type(op.Reshape(product, op.Shape(LU)), KIND.DOUBLE)
    if adjoint == left:
        matrix = op.Transpose(matrix, perm=[*range(rank - 2), rank - 1, rank - 2])
    right, sides = cast(B, KIND.DOUBLE), len(B.shape)
    swap = [*range(sides - 2), sides - 1, sides - 2]
    right = right if left else op.Transpose(right, perm=swap)
    solved = solve_matrices(matrix, right, sides, rank)
    if not left:
        widest = max(rank, sides)
        solved = op.Transpose(solved, perm=[*range(widest - 2), widest - 1, widest - 2])
    return op.Cast(solved, to=B.dtype)


def legacy_lu_solve(self: GraphValue, LU_data: GraphValue, LU_pivots: GraphValue) -> GraphValue:
    return lu_solve(LU_data, LU_pivots, self)


def complete_basis(columns: GraphValue, rows: GraphValue) -> GraphValue:
    """Return orthonormal columns [batch, m, n] with others behind them, so that they are a basis, [batch, m, m]."""
    count = op.Shape(columns, start=2, end=3)
    steps = count_up(op.Min(rows, count))
    _, reflectors, factors = _reflect_columns(columns, count_up(rows), steps)
    basis = _make_q(reflectors, factors, rows, rows)
    return op.Concat(columns, op.Slice(basis, count, [2**31], [2]), axis=2)


def _reflect(A: GraphValue) -> tuple[GraphValue, GraphValue, GraphValue]:
    m, n = get_size(A, -2), get_size(A, -1)
    result: tuple[GraphValue, GraphValue, GraphValue] = _reflect_columns(
        _flatten(cast(A, KIND.DOUBLE)), count_up(m), count_up(op.Min(m, n))
    )
    return result


def _pivot(A: GraphValue, pivot: bool) -> tuple[GraphValue, GraphValue]:
    m, n = get_size(A, -2), get_size(A, -1)
    is_free = op.Cast(op.Constant(value_int=int(pivot)), to=KIND.BOOL)
    matrix = _flatten(cast(A, KIND.DOUBLE))
    result: tuple[GraphValue, GraphValue] = _pivot_columns(
        matrix, count_up(m), count_up(n), count_up(op.Min(m, n)), is_free
    )
    return result


def _make_q(reflectors: GraphValue, factors: GraphValue, m: GraphValue, columns: GraphValue) -> GraphValue:
    """Reflect the first columns of the identity, the last reflector first."""
    batch = op.Shape(factors, start=1, end=2)
    eye = op.Cast(op.Equal(op.Unsqueeze(count_up(m), [1]), count_up(columns)), to=KIND.DOUBLE)
    start = op.Expand(eye, op.Concat(batch, m, columns, axis=0))
    return _apply_reflectors(start, _reverse(reflectors), _reverse(factors))


def _read_reflectors(packed: GraphValue, factors: GraphValue) -> tuple[GraphValue, GraphValue]:
    """Return the reflectors [k, batch, m] that are below the diagonal, and their factors [k, batch]."""
    matrix = _flatten(cast(packed, KIND.DOUBLE))
    count = get_size(factors, -1)
    taken = op.Slice(matrix, [0], count, [2])
    below = op.Sub(taken, op.Trilu(taken, upper=1))
    rows = count_up(get_size(packed, -2))
    ones = op.Cast(op.Equal(op.Unsqueeze(rows, [1]), count_up(count)), to=KIND.DOUBLE)
    flat = op.Reshape(cast(factors, KIND.DOUBLE), op.Concat(make_ints([-1]), count, axis=0))
    return op.Transpose(op.Add(below, ones), perm=[2, 0, 1]), op.Transpose(flat, perm=[1, 0])


def _read_pivots(pivots: GraphValue) -> GraphValue:
    flat = op.Reshape(pivots, op.Concat(make_ints([-1]), get_size(pivots, -1), axis=0))
    return op.Transpose(op.Sub(op.Cast(flat, to=KIND.INT64), make_ints([1])), perm=[1, 0])


def _follow_swaps(picks: GraphValue, m: GraphValue) -> GraphValue:
    rows = count_up(m)
    start = op.Expand(rows, op.Concat(op.Shape(picks, start=1, end=2), m, axis=0))
    return _follow_row_swaps(start, rows, picks, count_up(op.Shape(picks, start=0, end=1)))


def _make_permutation(places: GraphValue) -> GraphValue:
    """Return the matrix that moves each row back to its old place."""
    rows = op.Unsqueeze(count_up(op.Shape(places, start=1, end=2)), [1])
    return op.Cast(op.Equal(rows, op.Unsqueeze(places, [1])), to=KIND.DOUBLE)


def _get_lower(packed: GraphValue, count: GraphValue) -> GraphValue:
    taken = op.Slice(packed, [0], count, [2])
    rows = count_up(op.Shape(packed, start=1, end=2))
    ones = op.Cast(op.Equal(op.Unsqueeze(rows, [1]), count_up(count)), to=KIND.DOUBLE)
    return op.Add(op.Sub(taken, op.Trilu(taken, upper=1)), ones)


def _get_upper(packed: GraphValue, count: GraphValue) -> GraphValue:
    return op.Trilu(op.Slice(packed, [0], count, [1]), upper=1)


def _flatten(A: GraphValue) -> GraphValue:
    """Return [batch, m, n] from any number of batch dims."""
    return op.Reshape(A, op.Concat(make_ints([-1]), op.Shape(A, start=-2), axis=0))


def _restore(result: GraphValue, like: GraphValue, *sizes: GraphValue) -> GraphValue:
    """Return the result with the batch dims of a matrix, and in its type."""
    shape = op.Concat(op.Shape(like, end=-2), *sizes, axis=0)
    return op.Cast(op.Reshape(result, shape), to=like.dtype)


def _restore_batch(result: GraphValue, like: GraphValue, size: GraphValue, kind: GraphValue = None) -> GraphValue:
    return op.Cast(op.Reshape(result, op.Concat(op.Shape(like, end=-2), size, axis=0)), to=kind or like.dtype)


def _reverse(value: GraphValue) -> GraphValue:
    """Reverse the front dim."""
    return op.Slice(value, [-1], [-(2**31)], [0], [-1])


TABLE: Table = {
    torch.ops.aten.linalg_qr.default: qr,
    torch.ops.aten.geqrf.default: geqrf,
    torch.ops.aten.linalg_householder_product.default: householder_product,
    torch.ops.aten.ormqr.default: ormqr,
    torch.ops.aten.linalg_lu_factor_ex.default: lu_factor_ex,
    torch.ops.aten.linalg_lu_factor.default: lu_factor,
    torch.ops.aten.linalg_lu.default: lu,
    torch.ops.aten.lu_unpack.default: lu_unpack,
    torch.ops.aten.linalg_lu_solve.default: lu_solve,
    torch.ops.aten.lu_solve.default: legacy_lu_solve,
}
