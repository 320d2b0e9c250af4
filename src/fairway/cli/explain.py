"""fairway explain FW###"""

from __future__ import annotations

from typing import Annotated

import typer

from fairway.errors import complain
from fairway.findings.codes import CODES
from fairway.findings.render import render_page


def explain(
    code: Annotated[str | None, typer.Argument(metavar="FW###", help="The finding's code.")] = None,
    everything: Annotated[bool, typer.Option("--list", help="List every code with its title.")] = False,
) -> int:
    """Print the page of a finding: what it means, whose it is, what to do."""
    if everything or code is None:
        for each in CODES.values():
            print(f"{each.code}  {each.severity:<8} {each.title}")
        return 0
    row = CODES.get(code.upper())
    if row is None:
        raise complain("FW014", code)
    print(render_page(row))
    return 0
