"""Make values from records and files safe to show: plain text and finite numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from fairway.diagnostics.render import make_printable

PageData: TypeAlias = dict[str, Any]
"""JSON for the scripts of a page, which name its keys."""

MAX_NAME_CHARACTERS = 300
MAX_TEXT_CHARACTERS = 4000
MAX_ITEMS = 500
"""Items of one kind that are shown, unless more are expected."""
MAX_BROWSER_INTEGER = 2**53


def clean_text(value: object, max_characters: int = MAX_TEXT_CHARACTERS) -> str:
    """Return text without characters that move a cursor or turn the reading direction, cut if it is too long."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    cut = text if len(text) <= max_characters else f"{text[:max_characters]}… ({len(text)} characters)"
    return make_printable(cut)


def clean_name(value: object) -> str:
    return clean_text(value, MAX_NAME_CHARACTERS)


def clean_number(value: object) -> float | int | None:
    """Return a finite number that a browser can hold, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value if abs(value) < MAX_BROWSER_INTEGER else None
    return value if math.isfinite(value) else None


def clean_whole_number(value: object) -> int:
    return int(clean_number(value) or 0)


def keep_list(value: object, max_items: int = MAX_ITEMS) -> list[object]:
    return list(value[:max_items]) if isinstance(value, list | tuple) else []


def keep_objects(value: object, max_items: int = MAX_ITEMS) -> list[Mapping[str, object]]:
    return [item for item in keep_list(value, max_items) if isinstance(item, Mapping)]


def keep_object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def shorten_path(file: object) -> str:
    """Return a path relative to the current folder, or else its last two names."""
    path = Path(clean_name(file))
    if not path.is_absolute():
        return str(path)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return "/".join(("…", *path.parts[-2:]))
