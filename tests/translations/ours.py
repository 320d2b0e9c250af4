"""A trial with Fairway's own translations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairway.testing.trial import Functions, Inputs
from fairway.testing.trial import Trial as AnyTrial
from fairway.translations import TRANSLATIONS

__all__ = ["Inputs", "Trial"]


class Trial(AnyTrial):
    def __init__(
        self,
        functions: Functions,
        points: Sequence[Inputs],
        table: Mapping[Any, Callable[..., Any]] = TRANSLATIONS,
    ) -> None:
        super().__init__(functions, points, table)
