"""Clients that ask without a pause over plain sockets, in a separate process, so that they cost the server little.

    python clients.py PORT REQUEST CLIENTS SECONDS

REQUEST is a file with a whole HTTP request in it. Prints JSON: the milliseconds of every answer, and what went wrong.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path


class Client(threading.Thread):
    """One connection."""

    def __init__(self, port: int, request: bytes, end: float) -> None:
        super().__init__(daemon=True)
        self.port, self.request, self.until = port, request, end
        self.times: list[float] = []
        self.errors: list[str] = []

    def run(self) -> None:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(120)
        while time.monotonic() < self.until:
            began = time.monotonic()
            try:
                connection.sendall(self.request)
                self._answer(connection)
                self.times.append(1000 * (time.monotonic() - began))
            except OSError as error:
                self.errors.append(repr(error))
                connection = socket.create_connection(("127.0.0.1", self.port))
                connection.settimeout(120)

    def _answer(self, connection: socket.socket) -> None:
        got = b""
        while b"\r\n\r\n" not in got:
            part = connection.recv(1 << 16)
            if not part:
                raise OSError("the connection was closed")
            got += part
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.decode().lower().splitlines()
        size = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
        while len(body) < size:
            part = connection.recv(1 << 16)
            if not part:
                raise OSError("the connection was closed")
            body += part
        if " 200" not in lines[0]:
            raise OSError(f"{lines[0]} {body[:300]!r}")


def main(port: str, request: str, clients: str, seconds: str) -> None:
    end = time.monotonic() + float(seconds)
    every = [Client(int(port), Path(request).read_bytes(), end) for _ in range(int(clients))]
    began = time.monotonic()
    for one in every:
        one.start()
    for one in every:
        one.join()
    spent = time.monotonic() - began
    times = [time for one in every for time in one.times]
    print(json.dumps({"times": times, "errors": [e for one in every for e in one.errors], "seconds": spent}))


if __name__ == "__main__":
    main(*sys.argv[1:])
