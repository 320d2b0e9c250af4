"""Serve the pages on the loopback of this machine, to clients that know the token in their address.

Every request must carry the token, so other users of the machine, other programs and other web pages are refused. The
Host header must name the loopback, so a web page with a name that points here (DNS rebinding) is refused too. Only
reading is possible, and only of listed records.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from fairway.diagnostics import Code
from fairway.diagnostics.errors import UserError, complain
from fairway.record.ui.folder_index import FolderIndex
from fairway.record.ui.list_page import render_list_page

LOOPBACK = "127.0.0.1"
HOST_NAMES = (LOOPBACK, "localhost", "[::1]")
"""Names of the server for a browser on this machine, or at the other end of a tunnel to it."""

MAX_COMPARED_RECORDS = 8

SAFE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

TOKEN_MISSING = "This page needs a token. Open the complete address that `fairway ui` printed.\n"


class PageServer(ThreadingHTTPServer):
    """The pages of one folder."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.index = FolderIndex(folder)
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise complain(
                Code.UNKNOWN_OPTION,
                f"--port {port}: {getattr(error, 'strerror', None) or error}",
                todo=("Give another port, or none to use a free one.",),
            ) from error

    @property
    def address(self) -> str:
        """The address to open in a browser."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error. A browser often closes a connection in the middle of an answer."""
        logging.getLogger(__name__).debug("a request failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fairway", ""
    timeout = 60
    """Seconds that a connection may be silent."""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in HOST_NAMES:
            return self._send_text(HTTPStatus.FORBIDDEN, "This server does not answer to this host name.\n")
        path, _, query = self.path.partition("?")
        token, slash, page = path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._send_text(HTTPStatus.FORBIDDEN, TOKEN_MISSING)
        match page:
            case "":
                return self._send(HTTPStatus.OK, "text/html", render_list_page())
            case "shelf":
                return self._send(HTTPStatus.OK, "application/json", json.dumps(self.server.index.list_folder()))
            case "report":
                return self._report(parse_qs(query).get("of", []))
        return self._send_text(HTTPStatus.NOT_FOUND, "There is no such page.\n")

    def _report(self, keys: list[str]) -> None:
        from fairway.record.page.page import make_page

        paths = [self.server.index.find_path(key) for key in keys]
        known = [path for path in paths if path is not None]
        if not known or len(known) < len(keys):
            return self._send_text(HTTPStatus.NOT_FOUND, "This record is not in the folder any more.\n")
        if len(known) > MAX_COMPARED_RECORDS:
            return self._send_text(
                HTTPStatus.BAD_REQUEST,
                f"Expected at most {MAX_COMPARED_RECORDS} records to compare, got {len(known)}.\n",
            )
        for given in ([_model_or_record(path) for path in known], known):  # a model that cannot be read has a record
            try:
                return self._send(HTTPStatus.OK, "text/html", make_page(given, back="./"))
            except UserError as error:
                why = f"{error.finding.code}: {error.finding.seen}\n"
        return self._send_text(HTTPStatus.CONFLICT, why)

    def _send_text(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "text/plain", text)

    def _send(self, status: HTTPStatus, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        for key, value in {
            **SAFE_HEADERS,
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
        }.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log the command alone, because the path holds the token."""
        logging.getLogger(__name__).debug("%s answered", self.command)


def _model_or_record(record: Path) -> Path:
    """Return the model of a record if it is there. Its page says if the record is about another file."""
    from fairway.record.ui.folder_index import RECORD_ENDING

    model = record.with_name(record.name.removesuffix(RECORD_ENDING) + ".onnx")
    return model if model.is_file() else record
