"""Show progress on standard error while a function runs, for `progress=True` in Python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from fairway.record.progress import Event, EventSink, Progress, RungFinished, StillWorking, apply_event, ignore_event

if TYPE_CHECKING:
    from rich.live import Live

REPAINT_SECONDS = 0.2

ProgressOption: TypeAlias = bool | EventSink
"""True shows progress. A function gets every event."""


@contextmanager
def open_progress(option: ProgressOption) -> Iterator[EventSink]:
    """Return the event sink that an option stands for."""
    if not isinstance(option, bool):
        yield option
        return
    if not option:
        yield ignore_event
        return
    from rich.console import Console
    from rich.live import Live

    # auto_refresh would start a thread, and no thread may run while Fairway forks its workers.
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        live.console.show_cursor()  # rich hides it, and a process that is killed would leave it hidden
        yield ProgressDisplay(live)


class ProgressDisplay:
    """One line that is rewritten, and a line that stays for each finished rung."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._progress = Progress(time.time())
        self._painted_at = 0.0

    def __call__(self, event: Event) -> None:
        from rich.text import Text

        now = time.time()
        self._progress = apply_event(self._progress, event, now)
        if isinstance(event, RungFinished):
            self._live.console.print(Text(f"{event.route}: {event}, {event.seconds:.1f} s"))
        elif isinstance(event, StillWorking) and not self._live.console.is_terminal:
            return
        if now - self._painted_at >= REPAINT_SECONDS:
            self._painted_at = now
            line = "  ".join([f"{now - self._progress.started_at:4.0f} s", *self._progress.describe(now)])
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=self._live.console.is_terminal)
