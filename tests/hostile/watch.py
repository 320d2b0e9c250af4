"""Helpers of the hostile tests: every file that is opened, and the finding that a call ended with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairway.diagnostics.errors import UserError

_listening: list[list[str]] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _listening and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _listening[-1].append(os.fsdecode(arguments[0]))


sys.addaudithook(_hear)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The paths that Python opens meanwhile."""
    heard: list[str] = []
    _listening.append(heard)
    try:
        yield heard
    finally:
        _listening.pop()


def refusal(work: Callable[[], object]) -> tuple[str, str]:
    """(code, what was seen) of the finding that the work ends in."""
    with pytest.raises(UserError) as caught:
        work()
    return caught.value.finding.code, caught.value.finding.seen
