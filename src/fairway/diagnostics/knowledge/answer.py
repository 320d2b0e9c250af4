"""Reads a pasted log and answers, error by error: what it means, whose fault it is, which issue, what to try.

An entry of the knowledge says more than the page of a finding, so it speaks first. Only what a signature recognises is
said to be known. An error that nothing recognises is answered too: that it is not known, and where it was raised.

The time is bounded by the budgets below, whatever the log: entries are asked about the last errors only, each distinct
error once, and about so many characters in all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairway.diagnostics.codes import CODES
from fairway.diagnostics.knowledge.entry import KnownBug, entries
from fairway.diagnostics.knowledge.versions import as_new_as, versions_in
from fairway.diagnostics.log import SHOWN, Error, LogFinding, fairways_own, find_errors, numbered_lines
from fairway.diagnostics.signatures import ANYWHERE, EXPORTERS, OTHERS, recognise

NO_ISSUE = "No known upstream issue"
MOST_ERRORS = 300
MOST_TEXT = 300_000
"""Distinct errors, and characters of them, that entries are asked about; those at the end of the log."""

MOST_UNKNOWN = 5
"""Errors that nothing recognises that are answered; the last ones."""

_WHOSE = {
    "input": "your input",
    "model": "your model",
    "upstream": "an exporter or library, not known which",
    "evidence": "not known: the exported file is at fault, or the runtime",
    "limit": "your settings",
    "fairway": "Fairway",
}
_WRAPPERS = ("FW301", "FW305")
"""Pages that say no more than that an exporter failed; left out where the log holds the reason."""
_NO_ADVICE = (*_WRAPPERS, "FW407", "FW408")
_FRAME = re.compile(r'^[ \t|>E]{0,40}File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,7})')


@dataclass(frozen=True)
class Issue:
    """An upstream thread, and what is known of it on a date."""

    link: str
    status: str
    date: str
    affected: str
    fixed: str
    note: str
    """What follows for the versions that the log names; or empty."""

    def __str__(self) -> str:
        said = f"{self.link}, {self.status} on {self.date}"
        if self.fixed:
            said += f", fixed in {self.fixed}" if not self.fixed.startswith("by ") else f", gone in {self.fixed[3:]}"
        return f"{said}: {self.affected}." + (f" {self.note}" if self.note else "")


@dataclass(frozen=True)
class LogAnswer:
    """What is known of one error of a log, in the order in which it is told."""

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
    def known(self) -> bool:
        return self.code is not None or bool(self.entries)


def find_answers(text: str) -> list[LogAnswer]:
    """An answer to every error in a log, the same error once, in the order in which they come up."""
    numbered = numbered_lines(text)
    versions = versions_in(text[-MOST_TEXT:])
    found: dict[tuple[str | None, tuple[str, ...]], LogAnswer] = {}
    unknown: dict[str, Error] = {}

    def note(line: int, seen: str, code: str | None, matched: Sequence[KnownBug]) -> None:
        key = (code, tuple(entry.id for entry in matched))
        found.setdefault(key, _answer(line, seen, code, matched, versions))

    for known in fairways_own(numbered):
        note(known.line, known.seen, known.code, ())
    errors = list({(error.kind, error.text): error for error in reversed(list(find_errors(numbered)))}.values())[::-1]
    asked = _Budget()
    matching = {id(error): asked.about(error.text) for error in reversed(errors[-MOST_ERRORS:])}
    for error in errors:
        got = recognise(error.kind, error.text, (*EXPORTERS, *OTHERS))
        matched = matching.get(id(error), ())
        if got or matched:
            note(error.line, error.seen, got[0] if got else None, matched)
        elif not error.kind.endswith("Warning"):
            unknown.pop(error.seen, None)
            unknown[error.seen] = error
    for known, matched in _anywhere(numbered):
        if not _told(known, matched, found.values()):
            note(known.line, known.seen, known.code or None, matched)
    answers = list(found.values())
    if any(answer.code not in _WRAPPERS or answer.entries for answer in answers):
        answers = [answer for answer in answers if answer.code not in _WRAPPERS or answer.entries]
    answers += [_not_known(error, numbered) for error in list(unknown.values())[-MOST_UNKNOWN:]]
    return sorted(answers, key=lambda answer: answer.line)


class _Budget:
    """Asks the entries about errors until enough characters were looked at."""

    def __init__(self, left: int = MOST_TEXT) -> None:
        self.left = left

    def about(self, text: str) -> tuple[KnownBug, ...]:
        """The line that names the exception decides; where it says nothing, the lines below it."""
        text = text[: self.left]
        self.left -= len(text)
        head = text.split("\n", 1)[0]
        for part in (head, text):
            matched = tuple(entry for entry in entries() if entry.matches(part))
            if matched:
                return matched
        return ()


def _anywhere(numbered: list[tuple[int, str]]) -> list[tuple[LogFinding, tuple[KnownBug, ...]]]:
    """What stands in lines of the end of a log, whether or not an exception is named beside it."""
    tail: list[tuple[int, str]] = []
    size = 0
    for number, line in reversed(numbered):
        size += len(line) + 1
        if size > MOST_TEXT // 3:
            break
        tail.append((number, line))
    tail.reverse()
    text = "\n".join(line for _, line in tail)
    spoken: dict[tuple[int, str], list[KnownBug]] = {}
    for entry in entries():
        if entry.matches(text):
            spoken.setdefault(_line(tail, entry.signature), []).append(entry)
    found = [(LogFinding("", line, seen.strip()[:SHOWN]), tuple(matched)) for (line, seen), matched in spoken.items()]
    for one in ANYWHERE:
        if one.words is not None and one.words.search(text):
            number, words = _line(tail, one.words.pattern)
            found.append((LogFinding(one.code, number, words.strip()[:SHOWN]), ()))
    return found


def _line(tail: list[tuple[int, str]], pattern: str) -> tuple[int, str]:
    """The first line in which a pattern is found; the last of all where it spans several."""
    return next((line for line in tail if re.search(pattern, line[1])), tail[-1])


def _told(known: LogFinding, matched: Sequence[KnownBug], answers: Iterable[LogAnswer]) -> bool:
    """Whether an answer speaks of this already."""
    if matched:
        return any(matched[0].id in answer.entries for answer in answers)
    return any(known.code == answer.code for answer in answers)


def _answer(line: int, seen: str, code: str | None, matched: Sequence[KnownBug], versions: dict[str, str]) -> LogAnswer:
    row = CODES[code] if code else None
    means = tuple(dict.fromkeys(f"{entry.title}." for entry in matched))
    if row is not None and not means:
        means = (f"{row.title}. {row.why}",)
    whose = ", ".join(dict.fromkeys(entry.whose or entry.project for entry in matched))
    todo = [entry.todo for entry in matched]
    todo += [f"Or let Fairway repair it: fairway export, remedy {name}." for name in _remedies(matched)]
    if row is not None and (not matched or row.code not in _NO_ADVICE) and not _remedies(matched):
        todo += row.todo
    name = f"{row.code} {row.name}" if row else matched[0].id
    issues = tuple(_issue(entry, versions) for entry in matched if entry.link)
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


def _remedies(matched: Sequence[KnownBug]) -> list[str]:
    return list(dict.fromkeys(entry.remedy for entry in matched if entry.remedy))


def _issue(entry: KnownBug, versions: dict[str, str]) -> Issue:
    """The entry's thread; what the log's version has to do with it is said where the version of the fix is known."""
    note = ""
    if entry.fixed_in is not None:
        package, version, first = entry.fixed_in
        has = versions.get(package)
        if has is not None and as_new_as(has, version):
            note = f"The log names {package} {has}, which has the fix: it is something else, or it came back."
        elif has is not None:
            note = f"The log names {package} {has}: " + (
                f"{version} or later has the fix." if first else f"{version} is known to be without it."
            )
    return Issue(entry.link, entry.status, entry.date.isoformat(), entry.affected, entry.fixed, note)


def _not_known(error: Error, numbered: list[tuple[int, str]]) -> LogAnswer:
    """That it is not known, and the frames that would help whoever looks: the last one, and the last of one's own."""
    frames = _frames(error.line, numbered)
    todo = ["Read the last lines of the traceback that lie in your own files."]
    own = [frame for frame in frames if "site-packages" not in frame and "/lib/python" not in frame]
    if own:
        todo = [f"Look at {own[-1]}: the last of your own lines before it."]
    todo.append("If it came out of an export: fairway export tries the other routes, and names the line to blame.")
    where = f" It was raised at {frames[-1]}." if frames else ""
    means = f"Not known: Fairway has neither a page nor an entry for this {error.kind}.{where}"
    return LogAnswer(error.line, error.seen, error.kind, None, (), (means,), "not known", (), tuple(todo))


def _frames(line: int, numbered: list[tuple[int, str]]) -> list[str]:
    """The frames of the traceback that stands right above a line."""
    first = numbered[0][0]
    above = numbered[max(0, line - first - 200) : line - first]
    starts = [i for i, (_, text) in enumerate(above) if text.lstrip().startswith("Traceback (most recent call last)")]
    found = [_FRAME.match(text) for _, text in above[starts[-1] if starts else len(above) :]]
    return [f"{frame['file']}:{frame['line']}" for frame in found if frame]
