"""An arm's process whose calls take so many percent longer than they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fairway.tune.bench import arm_program as engine


def slowed(call: Callable[[], object], percent: int) -> Callable[[], object]:
    """The call, and then so many percent of the time it took, spent in a loop."""
    if not percent:
        return call

    def longer() -> None:
        started = time.perf_counter()
        call()
        now = time.perf_counter()
        end = now + (now - started) * percent / 100
        while time.perf_counter() < end:
            pass

    return longer


def open_slowed(job: dict[str, Any]) -> engine.CallMaker:
    opened = engine.open_ort(job)
    return lambda arrays: slowed(opened(arrays), job["slower"])


if __name__ == "__main__":
    engine.ENGINES["ort"] = open_slowed
    engine.main()
