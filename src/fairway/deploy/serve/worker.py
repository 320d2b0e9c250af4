"""A worker process: it holds the models and computes, and nothing else, so that its death costs no request.

It communicates over one socket and ends when the other end does. Models are loaded in a thread, while it computes.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from typing import Any

from fairway.deploy.serve.wire import Head, Tensors, pack, receive_blocking
from fairway.model.ort_session import SessionSettings, open_session


class Worker:
    """The sessions by number, and the socket that requests come from."""

    def __init__(self, end: socket.socket, threads: int) -> None:
        self._end = end
        self._threads = threads
        self._sessions: dict[int, Any] = {}
        self._sending = threading.Lock()

    def work(self) -> None:
        while (message := receive_blocking(self._end)) is not None:
            head, tensors = message
            if head["do"] == "load":
                threading.Thread(target=self._load, args=(head,), daemon=True).start()
            elif head["do"] == "drop":
                self._sessions.pop(head["model"], None)
                self._answer({"job": head["job"]})
            else:
                self._run(head, tensors)

    def _load(self, head: Head) -> None:
        # Threads that spin while they wait would use the core of the other worker.
        settings = SessionSettings(self._threads, config_entries={"session.intra_op.allow_spinning": "0"})
        try:
            session = open_session(head["path"], settings)
        except Exception as error:
            self._answer({"job": head["job"], "error": f"{error!s:.500}"})
            return
        self._sessions[head["model"]] = session
        self._answer({"job": head["job"]})

    def _run(self, head: Head, tensors: Tensors) -> None:
        try:
            answers = self._sessions[head["model"]].run(head["outputs"], dict(tensors))
        except Exception as error:
            self._answer({"job": head["job"], "error": f"{error!s:.500}"})
            return
        named = zip(head["outputs"], answers, strict=True)
        self._answer({"job": head["job"]}, [(name, a.dtype.name, list(a.shape), [a]) for name, a in named])

    def _answer(self, head: Head, tensors: Any = ()) -> None:
        with self._sending:
            for piece in pack(head, tensors):
                self._end.sendall(piece)


def main() -> None:
    import onnxruntime  # noqa: F401  # imported before the first request, since it takes its time

    logging.raiseExceptions = False
    with socket.socket(fileno=int(sys.argv[1])) as end:
        try:
            Worker(end, int(sys.argv[2])).work()
        except (BrokenPipeError, ConnectionResetError):
            return  # the server is gone


if __name__ == "__main__":
    main()
