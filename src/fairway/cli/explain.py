"""fairway explain FW### | FILE | -"""

from __future__ import annotations

import json as json_module
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fairway.cli.options import JsonOption, words
from fairway.diagnostics.codes import CODES
from fairway.diagnostics.errors import complain
from fairway.diagnostics.knowledge.answer import NO_ISSUE, LogAnswer, find_answers
from fairway.diagnostics.log import TAIL, decode, read_tail
from fairway.diagnostics.render import labelled, render_page

NOTHING = """\
no error found in it: nothing stands there as Python or a library words one
A file that is wrong without a word leaves none; it is found by: fairway verify FILE RECIPE"""


def explain(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="FW###|FILE|-",
            help="A finding's code, or a log or traceback to read; - for a pipe.",
            autocompletion=words(*CODES),
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--list", help="List every code with its title.")] = False,
    json: JsonOption = False,
) -> int:
    """Print the page of a finding; or answer each error of a log: what it means, whose fault, which issue, what to try.

    Exit code 1 where nothing in the log is known.
    """
    if everything or what is None:
        listed = [f"{each.code}  {each.severity:<8} {each.title}" for each in CODES.values()]
        print(json_module.dumps([asdict(each) for each in CODES.values()], indent=1) if json else "\n".join(listed))
        return 0
    if re.fullmatch(r"[fF][wW]\d{3}", what):
        return _explain_code(what.upper(), json)
    data = _read(what)
    answers = find_answers(decode(data))
    if json:
        print(json_module.dumps([_fields(answer) for answer in answers], indent=1))
    else:
        print("\n\n".join(render_answer(answer, len(data) == TAIL) for answer in answers) if answers else NOTHING)
    return 0 if any(answer.known for answer in answers) else 1


def _explain_code(code: str, json: bool) -> int:
    if code not in CODES:
        raise complain("FW014", code)
    print(json_module.dumps(asdict(CODES[code]), indent=1) if json else render_page(CODES[code]))
    return 0


def _read(what: str) -> bytes:
    try:
        if what == "-":
            return read_tail(sys.stdin.buffer)
        with Path(what).open("rb", buffering=0) as file:
            return read_tail(file)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise complain(
            "FW014",
            f"{what!r} is neither a code nor a file that can be read: {why}",
            todo=("List the codes: fairway explain --list", "Or name a file: fairway explain error.log"),
        ) from error


def _fields(answer: LogAnswer) -> dict[str, Any]:
    """The answer as it is told, under the same names."""
    return {
        "line": answer.line,
        "seen": answer.seen,
        "name": answer.name,
        "known": answer.known,
        "code": answer.code,
        "entries": list(answer.entries),
        "means": list(answer.means),
        "whose": answer.whose,
        "upstream": [asdict(issue) for issue in answer.issues],
        "upstream_said": _upstream(answer),
        "do": list(answer.todo),
    }


def _upstream(answer: LogAnswer) -> list[str]:
    return [str(issue) for issue in answer.issues] or [NO_ISSUE]


def render_answer(answer: LogAnswer, cut: bool = False) -> str:
    """What it means, whose fault, which issue, what to try: in that order, because that is the order of questions."""
    where = f"line {answer.line} of the last {TAIL // 2**20} MB" if cut else f"line {answer.line}"
    lines = [answer.name, *labelled("seen", f"{where}: {answer.seen}")]
    for number, meaning in enumerate(answer.means):
        lines += labelled("means" if number == 0 else "", meaning)
    lines += labelled("whose", answer.whose)
    for number, said in enumerate(_upstream(answer)):
        lines += labelled("upstream" if number == 0 else "", said)
    for number, step in enumerate(answer.todo, 1):
        lines += labelled("do" if number == 1 else "", f"{number}. {step}")
    return "\n".join(lines)
