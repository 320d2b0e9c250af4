"""Reads someone's traceback: any bytes, of any length, and what is known of them.

Only the end of a long log is looked at, since that is where the error stands. A log is cut into errors, each from the
line that names an exception to the next such line, and each is recognised as a live failure would be.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from fairway.diagnostics.codes import CODES
from fairway.diagnostics.signatures import EXPORTERS, OTHERS, recognise

TAIL = 4 * 2**20
"""Bytes that are looked at."""

MOST = 64 * TAIL
"""Bytes after which a stream that does not end is left."""

LINES = 50_000
LINE = 2000
BLOCK = 20_000
"""Lines, characters of one line, and characters of one error that are looked at."""

SHOWN = 300

_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_ERROR = re.compile(
    r"^[ \t|>E*`-]{0,40}(?:[A-Za-z_]\w{0,60}\.){0,12}"
    r"(?P<kind>\w{0,60}?(?:Error|Exception|Warning|Violation|Node|Fail|InvalidGraph|InvalidProtobuf|InvalidArgument|"
    r"NotImplemented|NoSuchFile|Unsupported)\w{0,20})(?=:|[ \t]*$)",
)
_RAISED = re.compile(r"^(?:[A-Za-z_]\w{0,60}\.){0,12}(?P<kind>[A-Za-z_]\w{0,80})(?=:|[ \t]*$)")
_TRACEBACK = "Traceback (most recent call last)"
_LOCATED = re.compile(r"^[^\n:]{1,300}:\d{1,7}: (?P<kind>\w{1,60}Warning): ")
_OURS = re.compile(r"\b(?P<code>FW\d{3}) (?:error|warning|note): ")


@dataclass(frozen=True)
class Error:
    """One error of a log: the line that names the exception, its name, and its words up to the next error."""

    line: int
    kind: str
    text: str

    @property
    def seen(self) -> str:
        return self.text.split("\n", 1)[0].strip()[:SHOWN]


@dataclass(frozen=True)
class LogFinding:
    """A finding that a log speaks of, and where."""

    code: str
    line: int
    seen: str


def read_tail(stream: BinaryIO) -> bytes:
    """The end of a stream, in bounded memory. One that can be sought is not read through."""
    if stream.seekable():
        size = stream.seek(0, 2)
        stream.seek(max(0, size - TAIL))
        return stream.read(TAIL)
    kept: deque[bytes] = deque()
    held = taken = 0
    while taken < MOST and (chunk := stream.read(1 << 16)):
        kept.append(chunk)
        held, taken = held + len(chunk), taken + len(chunk)
        while held - len(kept[0]) >= TAIL:
            held -= len(kept.popleft())
    return b"".join(kept)[-TAIL:]


def decode(data: bytes) -> str:
    """Text from any bytes: UTF-16 where it says so or every other byte is zero, else UTF-8 as far as it goes."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", errors="replace")
    elif data[1:200:2].count(0) > 60:
        text = data.decode("utf-16-le", errors="replace")
    else:
        text = data.decode("utf-8-sig", errors="replace")
    return _ESCAPE.sub("", text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n"))


def find_known(text: str) -> list[LogFinding]:
    """Every finding that the text speaks of, once each, in the order in which it comes up."""
    numbered = numbered_lines(text)
    found = {known.code: known for known in reversed(fairways_own(numbered))}
    for error in find_errors(numbered):
        got = recognise(error.kind, error.text, (*EXPORTERS, *OTHERS))
        if got is not None and got[0] not in found:
            found[got[0]] = LogFinding(got[0], error.line, error.seen)
    return sorted(found.values(), key=lambda known: known.line)


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """The last lines with their numbers, each cut to a length that can be looked at."""
    lines = text.split("\n")
    first = max(0, len(lines) - LINES)
    return [(number, line[:LINE]) for number, line in enumerate(lines[first:], first + 1)]


def fairways_own(numbered: list[tuple[int, str]]) -> list[LogFinding]:
    """The findings that Fairway itself printed, in order."""
    found = []
    for number, line in numbered:
        ours = _OURS.search(line)
        if ours and ours["code"] in CODES:
            found.append(LogFinding(ours["code"], number, line.strip()[:SHOWN]))
    return found


def find_errors(numbered: list[tuple[int, str]]) -> Iterator[Error]:
    """Every error of a log, in order: what is named as exceptions are, and whatever a traceback ends in."""
    kind, start, size = "", 0, 0
    block: list[str] = []
    tracing = False
    for number, line in numbered:
        head = _ERROR.match(line) or _LOCATED.match(line)
        if tracing and line and not line[0].isspace():
            head, tracing = head or _RAISED.match(line), False
        tracing = tracing or line.startswith(_TRACEBACK)
        if head is not None:
            if block:
                yield Error(start, kind, "\n".join(block))
            kind, start, block, size = head["kind"], number, [], 0
        if kind and size < BLOCK:
            block.append(line)
            size += len(line) + 1
    if block:
        yield Error(start, kind, "\n".join(block))
