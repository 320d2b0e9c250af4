"""Less frequent garbage collection while there is almost no garbage: during imports and captures."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARE_COLLECTION_OBJECTS = 50_000
"""New objects between two collections; Python's default is 700. Collections took a fifth of the time of an import of
torch, and a tenth of that of a capture."""


@contextmanager
def collect_garbage_rarely() -> Iterator[None]:
    """Collect garbage rarely inside the block, also in processes forked there.

    A threshold that is already higher, or 0 for never, is kept.
    """
    threshold, *rest = gc.get_threshold()
    gc.set_threshold(max(threshold, RARE_COLLECTION_OBJECTS) if threshold else 0, *rest)
    try:
        yield
    finally:
        gc.set_threshold(threshold, *rest)
