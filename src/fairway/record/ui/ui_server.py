"""Serves the pages on this machine's loopback, to whoever knows the token that stands in their address.

Every request must carry the token, so other users of the machine, other programs and other web pages are refused. The
Host header must name the loopback: a web page that has its own name point here (DNS rebinding) is refused too. Only
reading is possible, and only of what the shelf holds.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fairway.diagnostics.errors import UserError, complain
from fairway.record.ui.folder_index import FolderIndex
from fairway.record.ui.list_page import list_page

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost", "[::1]")
"""What a browser on this machine, or at the other end of a tunnel to it, may call the server."""

AT_ONCE = 8
"""Records that are compared on one page."""

SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

NEEDED = "This page is for whoever started it: open the address that `fairway ui` printed, token and all.\n"


class Server(ThreadingHTTPServer):
    """One folder's pages. `address` is what to open."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.shelf = FolderIndex(folder)
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise complain(
                "FW006",
                f"--port {port}: {getattr(error, 'strerror', None) or error}",
                todo=("Name another port, or none: then a free one is taken.",),
            ) from error

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no news on a terminal."""
        logging.getLogger(__name__).debug("a request failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fairway", ""
    timeout = 60
    """Seconds that a connection may be silent."""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in NAMES:
            return self._say(HTTPStatus.FORBIDDEN, "Not under this name.\n")
        path, _, query = self.path.partition("?")
        token, slash, page = path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._say(HTTPStatus.FORBIDDEN, NEEDED)
        match page:
            case "":
                return self._send(HTTPStatus.OK, "text/html", list_page())
            case "shelf":
                return self._send(HTTPStatus.OK, "application/json", json.dumps(self.server.shelf.look()))
            case "report":
                return self._report(parse_qs(query).get("of", []))
        return self._say(HTTPStatus.NOT_FOUND, "There is no such page.\n")

    def _report(self, keys: list[str]) -> None:
        from fairway.record.page.page import make_page

        paths = [self.server.shelf.path(key) for key in keys]
        known = [path for path in paths if path is not None]
        if not known or len(known) < len(keys):
            return self._say(HTTPStatus.NOT_FOUND, "There is no such record any more.\n")
        if len(known) > AT_ONCE:
            return self._say(HTTPStatus.BAD_REQUEST, f"At most {AT_ONCE} records are compared at once.\n")
        for given in ([_model_or_record(path) for path in known], known):  # a model that cannot be read has a record
            try:
                return self._send(HTTPStatus.OK, "text/html", make_page(given, back="./"))
            except UserError as error:
                why = f"{error.finding.code}: {error.finding.seen}\n"
        return self._say(HTTPStatus.CONFLICT, why)

    def _say(self, status: HTTPStatus, words: str) -> None:
        self._send(status, "text/plain", words)

    def _send(self, status: HTTPStatus, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        for key, value in {**SAFE, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nobody's business on a terminal, and their paths hold the token."""
        logging.getLogger(__name__).debug("%s answered", self.command)


def _model_or_record(record: Path) -> Path:
    """A page of a model says where it is not the one that its record is about; without the model, the record's own."""
    from fairway.record.ui.folder_index import ENDING

    model = record.with_name(record.name.removesuffix(ENDING) + ".onnx")
    return model if model.is_file() else record
