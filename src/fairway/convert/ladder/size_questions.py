"""Notes the lines that ask for a size while torch.export captures, and the answers they get.

torch.export writes a guard for each answer, without the line. The lines are noted while it captures, so that a dim that
was fixed, or a file that is wrong at other sizes, has a cause: a line of the user's code or of a library.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway import torch_internals
from fairway.convert.ladder.capture_guards import rewrite_condition
from fairway.diagnostics import Where
from fairway.judge.guards import check_guards, count_excluded
from fairway.model.dims import Domain, Size
from fairway.model.source import is_model_source, is_user_code, make_where
from fairway.model.subject import Subject
from fairway.torch_internals import read_internal, replace_internal

_SOURCE = re.compile(r"\[(\d+)\]\.size\(\)\[(\d+)\]$")
"""torch's name of a size of an input: the numbers of the input and of the axis come last."""

_WRAPPER_FILE = str(Path(__file__).with_name("flat_model.py"))
"""The module of the wrapper that calls the user's model."""

MAX_QUESTIONS = 200
"""Questions that are considered. A model asks the first few, and libraries repeat them."""


@dataclass(frozen=True)
class Question:
    """A condition on the dims that the capture assumed, and the line that asked for it."""

    condition: str
    where: Where
    """The innermost line of the model's code or of a library other than torch."""
    called_from: Where | None = None
    """The user's own line, if it is a different one."""

    @property
    def fixes(self) -> str | None:
        """The dim that the condition fixes to one size, or None."""
        match = re.fullmatch(r"(\w+) == \d+", self.condition)
        return None if match is None else match[1]

    def __str__(self) -> str:
        caller = f", called from {self.called_from.file}:{self.called_from.line}" if self.called_from else ""
        return f"`{self.condition}` is asked for at {self.where.file}:{self.where.line}{caller}"


@contextmanager
def note_questions(subject: Subject) -> Iterator[list[Question]]:
    """Note the questions about sizes that torch.export answers within the block, with their lines.

    The list is filled at the end, with the questions whose answer differs somewhere in the domain. An exception that
    leaves the block carries them as `questions`.
    """
    original = read_internal("log_guard")  # called for each new guard
    noted: dict[tuple[str, str | None, int | None], Question] = {}

    def note(self: Any, prefix: str, guard: Any, *args: Any, **options: Any) -> Any:
        places = _find_places()
        if places:
            sizes = _map_symbols(self, subject)
            condition = rewrite_condition(guard, sizes)
            if condition is not None:
                question = Question(condition, *places)
                noted.setdefault((condition, places[0].file, places[0].line), question)
        return original(self, prefix, guard, *args, **options)

    questions: list[Question] = []
    try:
        with replace_internal("log_guard", note):
            yield questions
    except Exception as error:
        error.questions = _select_restricting(subject.domain, noted.values())  # type: ignore[attr-defined]
        raise
    finally:
        questions += _select_restricting(subject.domain, noted.values())


def _select_restricting(domain: Domain, questions: Iterable[Question]) -> tuple[Question, ...]:
    """Return the questions whose answer differs at some point of the domain."""
    first = list(questions)[:MAX_QUESTIONS]
    return tuple(question for question in first if check_guards(domain, [question.condition])[0].excluded)


def find_broken_question(questions: Sequence[Question], points: Sequence[dict[str, int]]) -> Question | None:
    """Return the first question whose answer differs at all of the points."""
    return next((q for q in questions if points and count_excluded([q.condition], points) == len(points)), None)


def _map_symbols(environment: Any, subject: Subject) -> dict[str, Size]:
    """Return the declared sizes by torch's symbols."""
    sizes: dict[str, Size] = {}
    for source, symbol in environment.source_to_var.items():
        place = _SOURCE.search(str(source))
        if place is None:
            continue
        number, axis = int(place[1]), int(place[2])
        if number < len(subject.spec) and axis < len(subject.spec[number].shape):
            sizes.setdefault(str(symbol), subject.spec[number].shape[axis])
    return sizes


def _find_places() -> tuple[Where] | tuple[Where, Where] | None:
    """Return the line of the model that is running, and the user's line if it is a different one."""
    lines = _list_running_lines() or list(_list_followed_lines())
    inner = next((line for line in lines if is_model_source(line.file or "")), None)
    if inner is None:
        return None
    users = next((line for line in lines if is_user_code(line.file or "")), None)
    return (inner,) if users is None or users == inner else (inner, users)


def _list_running_lines() -> list[Where]:
    """Return the lines of the model that run, innermost first; none while the model itself does not run.

    Frames further out belong to the program that called the export.
    """
    lines = []
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != _WRAPPER_FILE:
        if is_model_source(frame.f_code.co_filename):
            lines.append(make_where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))
        frame = frame.f_back
    return lines if frame is not None and frame.f_code.co_name == "forward" else []


def _list_followed_lines() -> Iterator[Where]:
    """Yield the lines that strict capture follows without running them."""
    for frame in reversed(torch_internals.TracingContext.extract_stack()):
        yield make_where(frame.filename, frame.lineno or 0, frame.name)
