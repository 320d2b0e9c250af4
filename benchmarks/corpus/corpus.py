"""Every case by name: the idioms, and transformers' architectures under `arch/`."""

from __future__ import annotations

import architectures
import idioms  # noqa: F401  # fills IDIOMS
from case import IDIOMS, Case


def names() -> list[str]:
    return [*IDIOMS, *architectures.names()]


def find(name: str) -> Case:
    return architectures.find(name) if name.startswith(architectures.PREFIX) else IDIOMS[name]
