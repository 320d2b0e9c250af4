"""Answers to the errors in a log: what each means, whose fault it is, the upstream issue, and what to try.

The entry of a known bug says more than the page of a finding, so it comes first. An error counts as known only if a
signature matches it. Other errors are reported as unknown, with the line that raised them.

The limits below bound the time for any log: only the last errors are searched, each distinct error once, and only up to
a total number of characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairway.diagnostics.code_names import Code
from fairway.diagnostics.codes import CODES
from fairway.diagnostics.knowledge.entry import KnownBug, load_entries
from fairway.diagnostics.knowledge.versions import find_versions, is_at_least
from fairway.diagnostics.log import (
    MAX_SHOWN_CHARACTERS,
    LogFinding,
    LoggedError,
    find_errors,
    find_fairway_findings,
    number_lines,
)
from fairway.diagnostics.signatures import EXPORTER_SIGNATURES, PROSE_SIGNATURES, RUNTIME_SIGNATURES, recognize_error

NO_ISSUE = "No known upstream issue"
MAX_ERRORS = 300
MAX_SEARCHED_CHARACTERS = 300_000
"""Limits on the search in entries: distinct errors, and their characters, from the end of the log."""

MAX_UNKNOWN_ERRORS = 5
"""How many unknown errors are reported; the last ones."""

_WHOSE = {
    "input": "your input",
    "model": "your model",
    "upstream": "an exporter or a library",
    "evidence": "not known: the exported file or the runtime",
    "limit": "your settings",
    "fairway": "Fairway",
}
_WRAPPERS = (Code.CAPTURE_FAILED, Code.TRANSLATION_FAILED)
"""Codes that only say that an exporter failed. They are left out if the log contains the reason."""
_NO_ADVICE = (*_WRAPPERS, Code.RUNTIME_REFUSES, Code.RUNTIME_FAILS)
_FRAME = re.compile(r'^[ \t|>E]{0,40}File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,7})')


@dataclass(frozen=True)
class Issue:
    """An upstream thread and its status on a date."""

    link: str
    status: str
    date: str
    affected: str
    fixed: str
    note: str
    """What this means for the versions named in the log, or empty."""

    def __str__(self) -> str:
        text = f"{self.link}, {self.status} on {self.date}"
        if self.fixed:
            text += f", fixed in {self.fixed}" if not self.fixed.startswith("by ") else f", gone in {self.fixed[3:]}"
        return f"{text}: {self.affected}." + (f" {self.note}" if self.note else "")


@dataclass(frozen=True)
class LogAnswer:
    """The answer to one error of a log, in the order in which it is printed."""

    line: int
    seen: str
    name: str
    """The finding's code and name, the entry's id, or the exception's name."""
    code: str | None
    entries: tuple[str, ...]
    means: tuple[str, ...]
    whose: str
    issues: tuple[Issue, ...]
    todo: tuple[str, ...]

    @property
    def is_known(self) -> bool:
        return self.code is not None or bool(self.entries)


def find_answers(text: str) -> list[LogAnswer]:
    """Return an answer to every distinct error in a log, in order."""
    numbered = number_lines(text)
    versions = find_versions(text[-MAX_SEARCHED_CHARACTERS:])
    collected: dict[tuple[str | None, tuple[str, ...]], LogAnswer] = {}
    unknown: dict[str, LoggedError] = {}

    def note(line: int, seen: str, code: str | None, matched: Sequence[KnownBug]) -> None:
        key = (code, tuple(entry.id for entry in matched))
        collected.setdefault(key, _make_answer(line, seen, code, matched, versions))

    for known in find_fairway_findings(numbered):
        note(known.line, known.seen, known.code, ())
    errors = list({(error.kind, error.text): error for error in reversed(list(find_errors(numbered)))}.values())[::-1]
    budget = _SearchBudget()
    matching = {id(error): budget.search(error.text) for error in reversed(errors[-MAX_ERRORS:])}
    for error in errors:
        match = recognize_error(error.kind, error.text, (*EXPORTER_SIGNATURES, *RUNTIME_SIGNATURES))
        matched = matching.get(id(error), ())
        if match or matched:
            note(error.line, error.first_line, match[0] if match else None, matched)
        elif not error.kind.endswith("Warning"):
            unknown.pop(error.first_line, None)
            unknown[error.first_line] = error
    for known, matched in _find_in_prose(numbered):
        if not _is_answered(known, matched, collected.values()):
            note(known.line, known.seen, known.code or None, matched)
    answers = list(collected.values())
    if any(answer.code not in _WRAPPERS or answer.entries for answer in answers):
        answers = [answer for answer in answers if answer.code not in _WRAPPERS or answer.entries]
    answers += [_answer_unknown(error, numbered) for error in list(unknown.values())[-MAX_UNKNOWN_ERRORS:]]
    return sorted(answers, key=lambda answer: answer.line)


class _SearchBudget:
    """Searches errors in the entries until the limit on characters is reached."""

    def __init__(self, left: int = MAX_SEARCHED_CHARACTERS) -> None:
        self.left = left

    def search(self, text: str) -> tuple[KnownBug, ...]:
        """Return the entries that match the line with the exception, or else those that match the lines below it."""
        text = text[: self.left]
        self.left -= len(text)
        head = text.split("\n", 1)[0]
        for part in (head, text):
            matched = tuple(entry for entry in load_entries() if entry.matches(part))
            if matched:
                return matched
        return ()


def _find_in_prose(numbered: list[tuple[int, str]]) -> list[tuple[LogFinding, tuple[KnownBug, ...]]]:
    """Return what matches in the last lines of a log, with or without the name of an exception."""
    tail: list[tuple[int, str]] = []
    size = 0
    for number, line in reversed(numbered):
        size += len(line) + 1
        if size > MAX_SEARCHED_CHARACTERS // 3:
            break
        tail.append((number, line))
    tail.reverse()
    text = "\n".join(line for _, line in tail)
    entries_by_line: dict[tuple[int, str], list[KnownBug]] = {}
    for entry in load_entries():
        if entry.matches(text):
            entries_by_line.setdefault(_find_line(tail, entry.signature), []).append(entry)
    collected = [
        (LogFinding("", line, seen.strip()[:MAX_SHOWN_CHARACTERS]), tuple(matched))
        for (line, seen), matched in entries_by_line.items()
    ]
    for signature in PROSE_SIGNATURES:
        if signature.words is not None and signature.words.search(text):
            number, words = _find_line(tail, signature.words.pattern)
            collected.append((LogFinding(signature.code, number, words.strip()[:MAX_SHOWN_CHARACTERS]), ()))
    return collected


def _find_line(tail: list[tuple[int, str]], pattern: str) -> tuple[int, str]:
    """Return the first line that matches a pattern, or the last line if the match spans several."""
    return next((line for line in tail if re.search(pattern, line[1])), tail[-1])


def _is_answered(known: LogFinding, matched: Sequence[KnownBug], answers: Iterable[LogAnswer]) -> bool:
    """Return whether an answer already covers this."""
    if matched:
        return any(matched[0].id in answer.entries for answer in answers)
    return any(known.code == answer.code for answer in answers)


def _make_answer(
    line: int, seen: str, code: str | None, matched: Sequence[KnownBug], versions: dict[str, str]
) -> LogAnswer:
    row = CODES[code] if code else None
    means = tuple(dict.fromkeys(f"{entry.title}." for entry in matched))
    if row is not None and not means:
        means = (f"{row.title}. {row.why}",)
    whose = ", ".join(dict.fromkeys(entry.whose or entry.project for entry in matched))
    todo = [entry.todo for entry in matched]
    todo += [f"Or let Fairway repair it: fairway export, remedy {name}." for name in _list_remedies(matched)]
    if row is not None and (not matched or row.code not in _NO_ADVICE) and not _list_remedies(matched):
        todo += row.todo
    name = f"{row.code} {row.name}" if row else matched[0].id
    issues = tuple(_make_issue(entry, versions) for entry in matched if entry.link)
    return LogAnswer(
        line,
        seen,
        name,
        code,
        tuple(entry.id for entry in matched),
        means,
        whose or (_WHOSE[row.kind] if row else "not known"),
        issues,
        tuple(dict.fromkeys(todo)),
    )


def _list_remedies(matched: Sequence[KnownBug]) -> list[str]:
    return list(dict.fromkeys(entry.remedy for entry in matched if entry.remedy))


def _make_issue(entry: KnownBug, versions: dict[str, str]) -> Issue:
    """Return the thread of an entry, with a note on the version in the log if the fixed version is known."""
    note = ""
    if entry.fixed_in is not None:
        package, version, first = entry.fixed_in
        has = versions.get(package)
        if has is not None and is_at_least(has, version):
            note = f"The log names {package} {has}, which has the fix: this is another bug, or it came back."
        elif has is not None:
            note = f"The log names {package} {has}: " + (
                f"{version} or later has the fix." if first else f"{version} does not have it any more."
            )
    return Issue(entry.link, entry.status, entry.date.isoformat(), entry.affected, entry.fixed, note)


def _answer_unknown(error: LoggedError, numbered: list[tuple[int, str]]) -> LogAnswer:
    """Return the answer to an unknown error, with its last frame and the last frame in the user's own code."""
    frames = _find_frames(error.line, numbered)
    todo = ["Read the last lines of the traceback that are in your own files."]
    own = [frame for frame in frames if "site-packages" not in frame and "/lib/python" not in frame]
    if own:
        todo = [f"Look at {own[-1]}: the last of your own lines before the error."]
    todo.append("If an export raised it: fairway export tries other routes, and names the line at fault.")
    raised = f" It was raised at {frames[-1]}." if frames else ""
    means = f"Not known: Fairway has no entry for this {error.kind}.{raised}"
    return LogAnswer(error.line, error.first_line, error.kind, None, (), (means,), "not known", (), tuple(todo))


def _find_frames(line: int, numbered: list[tuple[int, str]]) -> list[str]:
    """Return the frames of the traceback directly above a line."""
    first = numbered[0][0]
    above = numbered[max(0, line - first - 200) : line - first]
    starts = [i for i, (_, text) in enumerate(above) if text.lstrip().startswith("Traceback (most recent call last)")]
    frames = [_FRAME.match(text) for _, text in above[starts[-1] if starts else len(above) :]]
    return [f"{frame['file']}:{frame['line']}" for frame in frames if frame]
