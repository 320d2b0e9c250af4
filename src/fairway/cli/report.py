"""fairway report MODEL|RECORD… -o report.html"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL|RECORD...", help="ONNX files, records, what --json printed. Several: compared."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="The page to write.")],
    measured: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="FILE", help="Of bench --json, or sensitivity's ranking.json. Repeatable."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page if it exists.")] = False,
) -> int:
    """Draw what is known of a file as one page that can be sent to a colleague."""
    from fairway.record.delivery import check_target
    from fairway.record.page.page import make_page, write_page

    check_target(output, overwrite)
    write_page(output, make_page(files, measured or ()))
    print(f"{output}  {output.stat().st_size / 1e3:.0f} kB")
    if open_it:
        import webbrowser

        if not webbrowser.open(output.absolute().as_uri()):
            print("no browser was found here; open the file yourself", file=sys.stderr)
    return 0
