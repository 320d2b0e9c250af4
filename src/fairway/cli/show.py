"""Progress and results on a terminal. Data goes to standard output, talk to standard error."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from fairway.diagnostics import exit_status
from fairway.diagnostics.render import printable
from fairway.record.progress import Standing, hear
from fairway.workers.garbage import seldom

if TYPE_CHECKING:
    from fairway.convert.generation.generation_result import GenerationResult
    from fairway.convert.result import Result

_COLOURS = {"verified": "32", "wrong": "31", "unproven": "33", "failed": "31"}
_WIPE = "\r\x1b[2K"
_QUIET_SECONDS = 2.0
_REPAINT_SECONDS = 0.2
"""Nobody reads faster."""
_TICK_SECONDS = 0.5


class Progress:
    """One line on standard error that is rewritten; nothing at all when that is not a terminal.

    `forks` says that work is forked from this process. Then the wait for it sends ticks; elsewhere a thread does, which
    must not be at hand where something is forked.
    """

    def __init__(self, forks: bool = True) -> None:
        self._live = _watched()
        self._standing = Standing(time.time())
        self._painted = 0.0
        self._lock, self._over = threading.Lock(), threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        if self._live and not forks:
            self._clock.start()

    def __call__(self, event: Any) -> None:
        with self._lock:
            now, before = time.time(), self._standing.doing
            self._standing = hear(self._standing, event, now)
            # Samples come by the hundred; what says something new may be the last word for a long time.
            old = event[0] in ("sample", "tick") or before == self._standing.doing
            early = now - self._standing.began < _QUIET_SECONDS or (old and now - self._painted < _REPAINT_SECONDS)
            if self._live and not early:
                width = os.get_terminal_size(sys.stderr.fileno()).columns
                sys.stderr.write(_WIPE + fit(now - self._standing.began, self._standing.words(now), width))
                sys.stderr.flush()
                self._painted = now

    def _tick(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            self(("tick",))

    def close(self) -> None:
        self._over.set()
        if self._clock.ident is not None:
            self._clock.join()
        if self._painted:
            sys.stderr.write(_WIPE)
            sys.stderr.flush()


def settled() -> None:
    """Called before the recipe is run: what was imported so far stays to the end, and is searched for no garbage."""
    gc.freeze()


@contextmanager
def loading(words: str = "loading torch and the model") -> Iterator[None]:
    """While torch and the recipe are loaded, which takes seconds and sends no events.

    A recipe may print; standard output is for the result.
    """
    said = threading.Event()

    def say() -> None:
        os.write(2, words.encode())  # past Python's own locks: the recipe may fork
        said.set()

    timer = threading.Timer(_QUIET_SECONDS, say)
    if _watched():
        timer.start()
    try:
        with redirect_stdout(sys.stderr), seldom():
            yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()
        if said.is_set():
            sys.stderr.write(_WIPE)
            sys.stderr.flush()


def _watched() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


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
