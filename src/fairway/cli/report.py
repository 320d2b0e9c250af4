"""fairway report MODEL|RECORD… -o report.html"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli.options import OverwriteOption


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL|RECORD...",
            help="ONNX files, records, or output of --json. Several are compared.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="The page to write.")],
    measured: Annotated[
        list[Path] | None,
        typer.Option(
            "--measured",
            metavar="FILE",
            help="Output of `fairway bench --json`, or a ranking.json of `fairway sensitivity`. Repeatable.",
        ),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    overwrite: OverwriteOption = False,
) -> int:
    """Write one HTML page about a file, to send to a colleague.

    It needs no server and no network.
    """
    from fairway.record.delivery import check_target
    from fairway.record.page.page import make_page, write_page

    check_target(output, overwrite)
    write_page(output, make_page(files, measured or ()))
    print(f"{output}  {output.stat().st_size / 1e3:.0f} kB")
    if open_it:
        import webbrowser

        if not webbrowser.open(output.absolute().as_uri()):
            print("no browser was found; open the file yourself", file=sys.stderr)
    return 0
