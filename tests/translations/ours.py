"""A trial with Fairway's own translations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairway.convert.translations import TRANSLATIONS
from fairway.testing.operator_trial import Functions, Inputs
from fairway.testing.operator_trial import Trial as AnyTrial

__all__ = ["Inputs", "Trial"]


class Trial(AnyTrial):
    def __init__(
        self,
        functions: Functions,
        points: Sequence[Inputs],
        table: Mapping[Any, Callable[..., Any]] = TRANSLATIONS,
    ) -> None:
        super().__init__(functions, points, table)
