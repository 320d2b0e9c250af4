"""Compare a table of translations with eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps

from fairway.diagnostics.errors import UserError
from fairway.model.subject import check_translations as check_table
from fairway.testing.operator_trial import Function, Functions, Inputs, TranslationTable, Trial


def check_translations(
    table: TranslationTable, functions: Functions, points: Sequence[Inputs], *, tolerance: float
) -> None:
    """Export the functions with the table and compare each with PyTorch at every point.

    The first point is the example, and dims that differ between the points are dynamic: use sizes of one, odd sizes and
    empty tensors. `tolerance` is relative to 1, or to the value if that is larger. Every operator of the table must be
    called.
    """
    try:
        check_table(table)
    except UserError as error:
        raise AssertionError(error.finding.seen) from error
    called: set[object] = set()
    trial = Trial(functions, points, {operator: _record_call(operator, f, called) for operator, f in table.items()})
    for name in functions:
        trial.check(name, tolerance)
    left = [str(operator) for operator in table if operator not in called]
    assert not left, f"no function calls {', '.join(left)}"


def _record_call(operator: object, function: Function, called: set[object]) -> Function:
    @wraps(function)
    def record_and_call(*args: object, **kwargs: object) -> object:
        called.add(operator)
        return function(*args, **kwargs)

    return record_and_call
