"""What verify and locate share: a file, the model it is said to be, and how closely to look."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fairway.cli import options
from fairway.cli.show import Progress, loading, result_status, settled, show_result

if TYPE_CHECKING:
    from fairway.convert.ladder.climb import Settings
    from fairway.convert.result import Result
    from fairway.model.recipe import Overrides
    from fairway.model.subject import Subject


def judge_and_show(
    recipe: str,
    said: Overrides,
    level: str,
    timeout: float,
    memory: str | None,
    json: bool,
    judge: Callable[[Subject, Settings, Progress], Result],
) -> int:
    """Loads the recipe, lets `judge` look at the file, prints what came out; the exit code."""
    limit = options.parse_memory(memory)

    with loading():
        from fairway.convert.export import make_settings
        from fairway.model.recipe import load_subject

        settings = make_settings(level, (), None, True, timeout, limit, judging=True)
        settled()
        subject = load_subject(recipe, said)
    progress = Progress()
    try:
        result = judge(subject, settings, progress)
    finally:
        progress.close()
    show_result(result, json)
    return result_status(result)
