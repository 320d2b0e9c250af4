"""The cases of the wild corpus by name."""

from __future__ import annotations

import models  # noqa: F401  # fills WILD
from case import Case
from entry import WILD


def names() -> list[str]:
    return [*WILD]


def find(name: str) -> Case:
    return WILD[name]
