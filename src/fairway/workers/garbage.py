"""Python looks for garbage less often while it would find next to none: as modules are made and graphs captured."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 50_000
"""New objects after which to look; Python's own number is 700. Looking took a fifth of the time that an import of torch
takes, and a tenth of a capture's."""


@contextmanager
def seldom() -> Iterator[None]:
    """Here, and in processes forked meanwhile. Whoever looks even less often, or never (0), is left alone."""
    often, *rest = gc.get_threshold()
    gc.set_threshold(max(often, SELDOM) if often else 0, *rest)
    try:
        yield
    finally:
        gc.set_threshold(often, *rest)
