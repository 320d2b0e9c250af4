"""Progress and results on a terminal. Results go to standard output, messages to standard error."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from fairway.diagnostics import exit_status
from fairway.diagnostics.render import make_printable
from fairway.record.progress import Event, ItemsCounted, Progress, StillWorking, apply_event
from fairway.workers.garbage import collect_garbage_rarely

if TYPE_CHECKING:
    from fairway.convert.generation.generation_result import GenerationResult
    from fairway.convert.result import Result

_COLOR_CODES = {"verified": "32", "wrong": "31", "unproven": "33", "failed": "31"}
_CLEAR_LINE = "\r\x1b[2K"
_QUIET_SECONDS = 2.0
_REPAINT_SECONDS = 0.2
_TICK_SECONDS = 0.5


class ProgressLine:
    """One line on standard error that is rewritten. Nothing is printed if that is not a terminal.

    `forks` says that this process forks workers. Waiting for a worker then updates the line. Otherwise a thread does,
    because a process with threads must not fork. rich's display is not used: it hides the cursor, also after a kill.
    """

    def __init__(self, forks: bool = True) -> None:
        self._live = _is_live_terminal()
        self._progress = Progress(time.time())
        self._painted = 0.0
        self._lock, self._over = threading.Lock(), threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        if self._live and not forks:
            self._clock.start()

    def __call__(self, event: Event) -> None:
        with self._lock:
            now, label_before = time.time(), self._progress.label
            self._progress = apply_event(self._progress, event, now)
            # Samples come by the hundred. A new label may be the last one for a long time.
            repeated = isinstance(event, StillWorking) or label_before == self._progress.label
            repeated = repeated or (isinstance(event, ItemsCounted) and event.unit == "samples")
            seconds = now - self._progress.started_at
            early = seconds < _QUIET_SECONDS or (repeated and now - self._painted < _REPAINT_SECONDS)
            if self._live and not early:
                width = os.get_terminal_size(sys.stderr.fileno()).columns
                sys.stderr.write(_CLEAR_LINE + fit_line(seconds, self._progress.describe(now), width))
                sys.stderr.flush()
                self._painted = now

    def _tick(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            self(StillWorking())

    def close(self) -> None:
        self._over.set()
        if self._clock.ident is not None:
            self._clock.join()
        if self._painted:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


def freeze_imports() -> None:
    """Exclude everything imported so far from garbage collection: it stays until the end."""
    gc.freeze()


@contextmanager
def show_loading(message: str = "loading torch and the model") -> Iterator[None]:
    """Show a message while torch and the recipe are loaded, which takes seconds and sends no events.

    Output of the recipe goes to standard error, because standard output is for the result.
    """
    shown = threading.Event()

    def show() -> None:
        os.write(2, message.encode())  # past Python's own locks: the recipe may fork
        shown.set()

    timer = threading.Timer(_QUIET_SECONDS, show)
    if _is_live_terminal():
        timer.start()
    try:
        with redirect_stdout(sys.stderr), collect_garbage_rarely():
            yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()
        if shown.is_set():
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


def _is_live_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def fit_line(spent: float, words: Sequence[str], width: int) -> str:
    """Return as many of the phrases as fit into one line. The first one is cut if it is too long."""
    line = f"{spent:4.0f} s  {make_printable(words[0])}"
    line = line if len(line) < width else f"{line[: max(width - 2, 8)]}…"
    for word in map(make_printable, words[1:]):
        if len(line) + 2 + len(word) < width:
            line += f"  {word}"
    return line


def result_status(result: Result | GenerationResult) -> int:
    """Return 0 if verified, and the exit code of the first error if the export failed, and 1 otherwise."""
    if result.verified:
        return 0
    errors = [f.code for f in result.findings if f.severity == "error"]
    return exit_status(errors[0]) if result.verdict == "failed" and errors else 1


def show_result(result: Result | GenerationResult, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {**result.record.as_dict(), "path": str(result.path) if result.path else None}, indent=1, default=str
            )
        )
        return
    text = str(result)
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        text = f"\x1b[1;{_COLOR_CODES[result.verdict]}m{result.verdict}\x1b[0m{text.removeprefix(result.verdict)}"
    print(text)
