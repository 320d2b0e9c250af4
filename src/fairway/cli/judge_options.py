"""The run that verify and locate share: load a recipe, judge a file, print the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairway.cli import options
from fairway.cli.show import ProgressLine, freeze_imports, result_status, show_loading, show_result

if TYPE_CHECKING:
    from fairway.convert.result import Result
    from fairway.convert.types import Settings
    from fairway.model.recipe import Overrides
    from fairway.model.subject import Subject


@dataclass(frozen=True)
class JudgingOptions:
    """The options of a command that judges a file."""

    recipe: str
    overrides: Overrides
    level: str
    timeout: str
    memory: str | None
    json: bool


def judge_and_show(request: JudgingOptions, judge: Callable[[Subject, Settings, ProgressLine], Result]) -> int:
    """Load the recipe, call `judge` with it, print the result, and return the exit code."""
    seconds = options.parse_duration("--timeout", request.timeout)
    memory_bytes = options.parse_memory(request.memory)

    with show_loading():
        from fairway.convert.export import make_judging_settings
        from fairway.model.recipe import load_subject
        from fairway.workers.attempt import Limits

        settings = make_judging_settings(request.level, Limits(seconds, memory_bytes))
        freeze_imports()
        subject = load_subject(request.recipe, request.overrides)
    progress = ProgressLine()
    try:
        result = judge(subject, settings, progress)
    finally:
        progress.close()
    show_result(result, request.json)
    return result_status(result)
