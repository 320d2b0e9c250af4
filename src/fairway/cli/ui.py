"""fairway ui [FOLDER]"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairway.diagnostics.errors import complain


def ui(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the records lie; here unless told.")] = Path(),
    port: Annotated[int, typer.Option("--port", metavar="N", help="A free one unless told.")] = 0,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> int:
    """Show a folder's records live: list, filter and compare them, and watch exports climb. For this machine alone."""
    if not folder.is_dir():
        raise complain("FW006", f"{folder} is no folder", todo=("Name the folder that the exports go to.",))
    from fairway.record.ui.ui_server import Server

    with Server(folder, port) as server:
        print(server.address, flush=True)
        print("only with this address, only from this machine; Ctrl-C ends it", file=sys.stderr)
        if open_it:
            import webbrowser

            if not webbrowser.open(server.address):
                print("no browser was found here; open the address yourself", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("", file=sys.stderr)
    return 0
