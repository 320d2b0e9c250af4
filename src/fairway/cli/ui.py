"""fairway ui [FOLDER]"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain


def ui(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder with the records. Default: the current folder.")
    ] = Path(),
    port: Annotated[int, typer.Option("--port", metavar="N", help="The port. Default: a free one.")] = 0,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> int:
    """Browse and compare a folder's records in the browser.

    Running exports are shown live. The page can be opened only from this machine.
    """
    if not folder.is_dir():
        raise complain(
            Code.UNKNOWN_OPTION, f"FOLDER: expected a folder, got {folder}", todo=("Name the folder with the exports.",)
        )
    from fairway.record.ui.ui_server import PageServer

    with PageServer(folder, port) as server:
        print(server.address, flush=True)
        print("open this address on this machine; Ctrl-C ends the server", file=sys.stderr)
        if open_it:
            import webbrowser

            if not webbrowser.open(server.address):
                print("no browser was found; open the address yourself", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("", file=sys.stderr)
    return 0
