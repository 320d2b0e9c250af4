"""Progress and results on a terminal. Data goes to standard output, talk to standard error."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from fairway.findings import exit_status

if TYPE_CHECKING:
    from fairway.generation.result import GenerationResult
    from fairway.result import Result

_COLOURS = {"verified": "32", "wrong": "31", "unproven": "33", "failed": "31"}
_QUIET_SECONDS = 2.0


class Progress:
    """One line on standard error that is rewritten; nothing at all when that is not a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._started = time.monotonic()
        self._rung = "starting"
        self._shown = False

    def __call__(self, event: Any) -> None:
        match event:
            case ("stage", text):
                self._say(str(text))
            case ("rung", step):
                self._rung = step.name
                self._say(step.name)
            case ("sample", done, total, text):
                self._say(f"{self._rung}: sample {done + 1} of {total}, {text}")
            case ("outcome", rung):
                self._rung = f"{rung.step.name}: {rung.verdict}"
                self._say(self._rung)

    def _say(self, text: str) -> None:
        spent = time.monotonic() - self._started
        if not self._live or spent < _QUIET_SECONDS:
            return
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        line = f"{spent:4.0f} s  {text}"
        sys.stderr.write("\r\x1b[2K" + line[: max(width - 1, 10)])
        sys.stderr.flush()
        self._shown = True

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


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
