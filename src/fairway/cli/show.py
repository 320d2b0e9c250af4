"""Progress and results on a terminal. Data goes to standard output, talk to standard error."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairway.findings import exit_status
from fairway.findings.render import printable
from fairway.standing import Standing, hear

if TYPE_CHECKING:
    from fairway.generation.result import GenerationResult
    from fairway.result import Result

_COLOURS = {"verified": "32", "wrong": "31", "unproven": "33", "failed": "31"}
_QUIET_SECONDS = 2.0
_REPAINT_SECONDS = 0.2
"""Nobody reads faster."""


class Progress:
    """One line on standard error that is rewritten; nothing at all when that is not a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._standing = Standing(time.time())
        self._painted = 0.0

    def __call__(self, event: Any) -> None:
        now, before = time.time(), self._standing.doing
        self._standing = hear(self._standing, event, now)
        # Samples come by the hundred; what says something new may be the last word for a long time.
        old = event[0] in ("sample", "tick") or before == self._standing.doing
        early = now - self._standing.began < _QUIET_SECONDS or (old and now - self._painted < _REPAINT_SECONDS)
        if self._live and not early:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            sys.stderr.write("\r\x1b[2K" + fit(now - self._standing.began, self._standing.words(now), width))
            sys.stderr.flush()
            self._painted = now

    def close(self) -> None:
        if self._painted:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def fit(spent: float, words: Sequence[str], width: int) -> str:
    """As many of the words as one line holds; the first is cut where even it does not fit."""
    line = f"{spent:4.0f} s  {printable(words[0])}"
    line = line if len(line) < width else f"{line[: max(width - 2, 8)]}…"
    for word in map(printable, words[1:]):
        if len(line) + 2 + len(word) < width:
            line += f"  {word}"
    return line


def result_status(result: Result | GenerationResult) -> int:
    """0 when verified. What is wrong with the call or the files has its own number also where an attempt found it."""
    if result.verified:
        return 0
    errors = [f.code for f in result.findings if f.severity == "error"]
    return exit_status(errors[0]) if result.verdict == "failed" and errors else 1


def show_result(result: Result | GenerationResult, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**result.record, "path": str(result.path) if result.path else None}, indent=1, default=str))
        return
    text = str(result)
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        text = f"\x1b[1;{_COLOURS[result.verdict]}m{result.verdict}\x1b[0m{text.removeprefix(result.verdict)}"
    print(text)
