"""fairway explain FW### | FILE | -"""

from __future__ import annotations

import json as json_module
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli.options import JsonOption, complete_from
from fairway.diagnostics.codes import CODES, Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.knowledge.answer import NO_ISSUE, LogAnswer, find_answers
from fairway.diagnostics.log import TAIL_BYTES, decode, read_tail
from fairway.diagnostics.render import format_labeled, render_page

NO_ERROR_MESSAGE = """\
no error found: no line looks like an error of Python or of a library
A wrong file can be made without any error; to test one: fairway verify FILE RECIPE"""


def explain(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="FW###|FILE|-",
            help="A finding code, or a log file with errors; - reads standard input.",
            autocompletion=complete_from(*CODES),
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--list", help="List every code with its title.")] = False,
    json: JsonOption = False,
) -> int:
    """Explain a finding code, or the errors in a log.

    For each error: what it means, whose fault it is, the upstream issue, and what to try. The exit code is 1 if no
    error in the log is known.
    """
    if everything or subject is None:
        listed = [f"{each.code}  {each.severity:<8} {each.title}" for each in CODES.values()]
        print(json_module.dumps([asdict(each) for each in CODES.values()], indent=1) if json else "\n".join(listed))
        return 0
    if re.fullmatch(r"[fF][wW]\d{3}", subject):
        return _explain_code(subject.upper(), json)
    data = _read_log(subject)
    answers = find_answers(decode(data))
    if json:
        print(json_module.dumps([_answer_as_dict(answer) for answer in answers], indent=1))
    else:
        print(
            "\n\n".join(render_answer(answer, len(data) == TAIL_BYTES) for answer in answers)
            if answers
            else NO_ERROR_MESSAGE
        )
    return 0 if any(answer.is_known for answer in answers) else 1


def _explain_code(code: str, json: bool) -> int:
    if code not in CODES:
        raise complain(Code.UNKNOWN_CODE, code)
    print(json_module.dumps(asdict(CODES[code]), indent=1) if json else render_page(CODES[code]))
    return 0


def _read_log(subject: str) -> bytes:
    try:
        if subject == "-":
            return read_tail(sys.stdin.buffer)
        with Path(subject).open("rb", buffering=0) as file:
            return read_tail(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise complain(
            Code.UNKNOWN_CODE,
            f"expected a finding code or a log file, got {subject!r}: {reason}",
            todo=("List the codes: fairway explain --list", "Or name a file: fairway explain error.log"),
        ) from error


def _answer_as_dict(answer: LogAnswer) -> dict[str, object]:
    """Return the answer as JSON data, under the labels of the printed answer."""
    return {
        "line": answer.line,
        "seen": answer.seen,
        "name": answer.name,
        "known": answer.is_known,
        "code": answer.code,
        "entries": list(answer.entries),
        "means": list(answer.means),
        "whose": answer.whose,
        "upstream": [asdict(issue) for issue in answer.issues],
        "upstream_said": _list_upstream(answer),
        "do": list(answer.todo),
    }


def _list_upstream(answer: LogAnswer) -> list[str]:
    return [str(issue) for issue in answer.issues] or [NO_ISSUE]


def render_answer(answer: LogAnswer, cut: bool = False) -> str:
    """Return the answer as text: what it means, whose fault it is, the upstream issue, what to try."""
    where = f"line {answer.line} of the last {TAIL_BYTES // 2**20} MB" if cut else f"line {answer.line}"
    lines = [answer.name, *format_labeled("seen", f"{where}: {answer.seen}")]
    for number, meaning in enumerate(answer.means):
        lines += format_labeled("means" if number == 0 else "", meaning)
    lines += format_labeled("whose", answer.whose)
    for number, issue in enumerate(_list_upstream(answer)):
        lines += format_labeled("upstream" if number == 0 else "", issue)
    for number, step in enumerate(answer.todo, 1):
        lines += format_labeled("do" if number == 1 else "", f"{number}. {step}")
    return "\n".join(lines)
