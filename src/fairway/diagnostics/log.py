"""Finds the errors in a log: any bytes of any length.

Only the end of a long log is read, because that is where the error is. A log is split into errors, each from a line
that names an exception to the next such line. Each error is recognized in the same way as one in a running export.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from fairway.diagnostics.codes import CODES
from fairway.diagnostics.signatures import EXPORTER_SIGNATURES, RUNTIME_SIGNATURES, recognize_error

TAIL_BYTES = 4 * 2**20
"""Only the last bytes of a log are read."""

MAX_STREAM_BYTES = 64 * TAIL_BYTES
"""Reading a stream that does not end stops after this many bytes."""

MAX_LINES = 50_000
MAX_LINE_CHARACTERS = 2000
MAX_ERROR_CHARACTERS = 20_000
"""Limits on what is searched: lines, characters of a line, and characters of an error."""

MAX_SHOWN_CHARACTERS = 300

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
class LoggedError:
    """One error of a log: its line number, the name of the exception, and the text up to the next error."""

    line: int
    kind: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.split("\n", 1)[0].strip()[:MAX_SHOWN_CHARACTERS]


@dataclass(frozen=True)
class LogFinding:
    """A finding that a log contains, and its line."""

    code: str
    line: int
    seen: str


def read_tail(stream: BinaryIO) -> bytes:
    """Return the end of a stream in bounded memory. A seekable stream is not read from the start."""
    if stream.seekable():
        size = stream.seek(0, 2)
        stream.seek(max(0, size - TAIL_BYTES))
        return stream.read(TAIL_BYTES)
    chunks: deque[bytes] = deque()
    held_bytes = read_bytes = 0
    while read_bytes < MAX_STREAM_BYTES and (chunk := stream.read(1 << 16)):
        chunks.append(chunk)
        held_bytes, read_bytes = held_bytes + len(chunk), read_bytes + len(chunk)
        while held_bytes - len(chunks[0]) >= TAIL_BYTES:
            held_bytes -= len(chunks.popleft())
    return b"".join(chunks)[-TAIL_BYTES:]


def decode(data: bytes) -> str:
    """Return any bytes as text: UTF-16 if it is marked or every other byte is zero, otherwise UTF-8."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", errors="replace")
    elif data[1:200:2].count(0) > 60:
        text = data.decode("utf-16-le", errors="replace")
    else:
        text = data.decode("utf-8-sig", errors="replace")
    return _ESCAPE.sub("", text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n"))


def find_known(text: str) -> list[LogFinding]:
    """Return every finding that the text contains, once each, in order."""
    numbered = number_lines(text)
    findings = {known.code: known for known in reversed(find_fairway_findings(numbered))}
    for error in find_errors(numbered):
        match = recognize_error(error.kind, error.text, (*EXPORTER_SIGNATURES, *RUNTIME_SIGNATURES))
        if match is not None and match[0] not in findings:
            findings[match[0]] = LogFinding(match[0], error.line, error.first_line)
    return sorted(findings.values(), key=lambda known: known.line)


def number_lines(text: str) -> list[tuple[int, str]]:
    """Return the last lines with their numbers, each cut to the limit."""
    lines = text.split("\n")
    first = max(0, len(lines) - MAX_LINES)
    return [(number, line[:MAX_LINE_CHARACTERS]) for number, line in enumerate(lines[first:], first + 1)]


def find_fairway_findings(numbered: list[tuple[int, str]]) -> list[LogFinding]:
    """Return the findings that Fairway itself printed, in order."""
    findings = []
    for number, line in numbered:
        match = _OURS.search(line)
        if match and match["code"] in CODES:
            findings.append(LogFinding(match["code"], number, line.strip()[:MAX_SHOWN_CHARACTERS]))
    return findings


def find_errors(numbered: list[tuple[int, str]]) -> Iterator[LoggedError]:
    """Yield the errors of a log in order: what is named like an exception, and the last line of each traceback."""
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
                yield LoggedError(start, kind, "\n".join(block))
            kind, start, block, size = head["kind"], number, [], 0
        if kind and size < MAX_ERROR_CHARACTERS:
            block.append(line)
            size += len(line) + 1
    if block:
        yield LoggedError(start, kind, "\n".join(block))
