"""Every case by name."""

from __future__ import annotations

import idioms  # noqa: F401  # fills IDIOMS
from case import IDIOMS, Case


def names() -> list[str]:
    return list(IDIOMS)


def find(name: str) -> Case:
    return IDIOMS[name]
