"""Values out of records and files become plain text and finite numbers, whoever wrote them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairway.diagnostics.render import printable

NAME, TEXT = 300, 4000
"""Characters of a name and of a message that are shown."""

MANY = 500
"""Things of one kind that are shown, unless more are expected."""


def text(value: Any, most: int = TEXT) -> str:
    """A message. What would move a cursor or turn the reading direction is a mark, and what is too long is cut."""
    said = value if isinstance(value, str) else "" if value is None else str(value)
    cut = said if len(said) <= most else f"{said[:most]}… ({len(said)} characters)"
    return printable(cut)


def name(value: Any) -> str:
    return text(value, NAME)


def number(value: Any) -> float | int | None:
    """A finite number that a browser holds too, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value if abs(value) < 2**53 else None
    return value if math.isfinite(value) else None


def whole(value: Any, otherwise: int = 0) -> int:
    found = number(value)
    return otherwise if found is None else int(found)


def items(value: Any, most: int = MANY) -> list[Any]:
    return list(value[:most]) if isinstance(value, list | tuple) else []


def objects(value: Any, most: int = MANY) -> list[Mapping[str, Any]]:
    return [one for one in items(value, most) if isinstance(one, Mapping)]


def fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def place(file: Any) -> str:
    """A path as far as a colleague needs it: from the current folder, else its last two names."""
    path = Path(name(file))
    if not path.is_absolute():
        return str(path)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return "/".join(("…", *path.parts[-2:]))
