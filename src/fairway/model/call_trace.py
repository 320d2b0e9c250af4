"""Follows the Python functions that a run of a model calls."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

TraceFunction: TypeAlias = Callable[[types.FrameType, str, object], "TraceFunction | None"]


@contextmanager
def trace_calls(enter: TraceFunction) -> Iterator[None]:
    """Call `enter` for each Python function that is called inside the block.

    Garbage is not collected there. A collection can start at any line and calls functions that are not the model's:
    finalizers, and `gc.callbacks`, to which hypothesis and profilers add functions with branches.
    """
    before, is_collecting = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
        if is_collecting:
            gc.enable()
