"""fairway explain FW### | FILE | -"""

from __future__ import annotations

import json as json_module
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli.options import JsonOption
from fairway.errors import complain
from fairway.findings.codes import CODES
from fairway.findings.log import TAIL, Known, decode, find_known, read_tail
from fairway.findings.render import render_page

NOTHING = "nothing known here: no error in it is one that Fairway has a page for"


def explain(
    what: Annotated[
        str | None,
        typer.Argument(metavar="FW###|FILE|-", help="A finding's code, or a log or traceback to read; - for a pipe."),
    ] = None,
    everything: Annotated[bool, typer.Option("--list", help="List every code with its title.")] = False,
    json: JsonOption = False,
) -> int:
    """Print the page of a finding, or of those that a log speaks of. Exit code 1 where nothing in it is known."""
    if everything or what is None:
        for each in CODES.values():
            print(f"{each.code}  {each.severity:<8} {each.title}")
        return 0
    if re.fullmatch(r"[fF][wW]\d{3}", what):
        return _explain_code(what.upper())
    data = _read(what)
    known = find_known(decode(data))
    if json:
        print(json_module.dumps([{**asdict(CODES[one.code]), **asdict(one)} for one in known], indent=1))
    else:
        print("\n\n".join(_page(one, len(data) == TAIL) for one in known) if known else NOTHING)
    return 0 if known else 1


def _explain_code(code: str) -> int:
    if code not in CODES:
        raise complain("FW014", code)
    print(render_page(CODES[code]))
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


def _page(known: Known, cut: bool) -> str:
    where = f"line {known.line} of the last {TAIL // 2**20} MB" if cut else f"line {known.line}"
    return render_page(CODES[known.code], f"{where}: {known.seen}")
