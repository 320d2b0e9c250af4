"""A table of translations against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from fairway.diagnostics.errors import UserError
from fairway.model.subject import check_translations as check_table
from fairway.testing.operator_trial import Functions, Inputs, Trial


def check_translations(
    table: Mapping[Any, Callable[..., Any]], functions: Functions, points: Sequence[Inputs], *, tolerance: float
) -> None:
    """Exports the functions with the table and compares each with PyTorch at every point.

    The first point is the example, and dims that differ between the points are dynamic: give sizes of one, odd ones and
    none. `tolerance` is relative to 1, or to the value where that is larger. Every operator of the table must be
    called.
    """
    try:
        check_table(table)
    except UserError as error:
        raise AssertionError(error.finding.seen) from error
    called: set[Any] = set()
    trial = Trial(functions, points, {operator: _counting(operator, f, called) for operator, f in table.items()})
    for name in functions:
        trial.check(name, tolerance)
    left = [str(operator) for operator in table if operator not in called]
    assert not left, f"no function calls {', '.join(left)}"


def _counting(operator: Any, function: Callable[..., Any], called: set[Any]) -> Callable[..., Any]:
    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        called.add(operator)
        return function(*args, **kwargs)

    return counted
