"""Which line asked for a size while torch.export captured, and which answer it was given.

torch.export writes a guard for each answer, without the line. The lines are noted here while it captures, so that a
dim that was fixed, or a file that is wrong at other sizes, has a cause: a line that ran, whosever code it is in.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fairway.convert.ladder.capture_guards import condition_on_dims
from fairway.diagnostics import Where
from fairway.judge.guards import check_guards, count_excluded
from fairway.model.dims import Domain, Size
from fairway.model.source import is_models, is_users, line_at
from fairway.model.subject import Subject

_SOURCE = re.compile(r"\[(\d+)\]\.size\(\)\[(\d+)\]$")
"""How torch names a size of an input: the input's and the axis's number come last."""


_CALLS_THE_MODEL = "fairway/ladder/capture.py"
"""Where the wrapper around the model is."""

MOST_QUESTIONS = 200
"""Questions that are looked at. A model asks the first few, and libraries repeat them."""


@dataclass(frozen=True)
class Question:
    """A condition on the dims that the capture took for granted, and the line that asked for it."""

    condition: str
    where: Where
    """The innermost line of the model's code or of a library besides torch."""
    called_from: Where | None = None
    """The user's own line, if that is another one."""

    @property
    def fixes(self) -> str | None:
        """The dim that the condition fixes to one size, or None."""
        found = re.fullmatch(r"(\w+) == \d+", self.condition)
        return None if found is None else found[1]

    def __str__(self) -> str:
        caller = f", called from {self.called_from.file}:{self.called_from.line}" if self.called_from else ""
        return f"`{self.condition}` is asked for at {self.where.file}:{self.where.line}{caller}"


@contextmanager
def noted_questions(subject: Subject) -> Iterator[list[Question]]:
    """While entered, note the questions about sizes that torch.export answers, with their lines.

    The list is filled at the end, with those whose answer differs somewhere in the domain. An exception that leaves the
    block carries them as `questions`.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    original: Any = ShapeEnv._log_guard  # called for each new guard; seen in torch 2.9–2.13, no public counterpart
    found: dict[tuple[str, str | None, int | None], Question] = {}

    def note(self: Any, prefix: str, guard: Any, *args: Any, **options: Any) -> Any:
        places = _places()
        if places:
            sizes = _sizes(self, subject)
            condition = condition_on_dims(guard, sizes)
            if condition is not None:
                question = Question(condition, *places)
                found.setdefault((condition, places[0].file, places[0].line), question)
        return original(self, prefix, guard, *args, **options)

    questions: list[Question] = []
    kind: Any = ShapeEnv
    kind._log_guard = note
    try:
        yield questions
    except Exception as error:
        error.questions = _restricting(subject.domain, found.values())  # type: ignore[attr-defined]
        raise
    finally:
        kind._log_guard = original
        questions += _restricting(subject.domain, found.values())


def _restricting(domain: Domain, questions: Iterable[Question]) -> tuple[Question, ...]:
    """Return the questions whose answer is another one at some point of the domain."""
    few = list(questions)[:MOST_QUESTIONS]
    return tuple(one for one in few if check_guards(domain, [one.condition])[0].excluded)


def broken_at(questions: Sequence[Question], points: Sequence[dict[str, int]]) -> Question | None:
    """Return the first question whose answer is another one at all of the points."""
    return next((q for q in questions if points and count_excluded([q.condition], points) == len(points)), None)


def _sizes(environment: Any, subject: Subject) -> dict[str, Size]:
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


def _places() -> tuple[Where] | tuple[Where, Where] | None:
    """Return the line of the model that is being run, and the user's line if that is another."""
    lines = _running() or list(_followed())
    inner = next((one for one in lines if is_models(one.file or "")), None)
    if inner is None:
        return None
    users = next((one for one in lines if is_users(one.file or "")), None)
    return (inner,) if users is None or users == inner else (inner, users)


def _running() -> list[Where]:
    """Return the lines of the model that run, innermost first; nothing while the model itself does not run.

    Frames further out are those of the program that asked for the export.
    """
    found = []
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.endswith(_CALLS_THE_MODEL):
        if is_models(frame.f_code.co_filename):
            found.append(line_at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))
        frame = frame.f_back
    return found if frame is not None and frame.f_code.co_name == "forward" else []


def _followed() -> Iterator[Where]:
    """Yield the lines that strict capture follows without running them."""
    from torch._guards import TracingContext

    for one in reversed(TracingContext.extract_stack()):
        yield line_at(one.filename, one.lineno or 0, one.name)
