"""Servers as a user starts them: with the command, in a separate process, on free ports."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from fairway.deploy.serve.tensors import DATATYPES, DTYPES

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0

Array = np.ndarray[Any, Any]


@dataclass
class Running:
    """A server that answers."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    scheme: str = "http"
    http: int = 0
    grpc: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.http}"

    def workers(self) -> list[int]:
        """The processes it started, by the kernel's word."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def memory(self) -> int:
        """Bytes in memory, of the server and its workers."""
        pages = 0
        for pid in (self.process.pid, *self.workers()):
            with contextlib.suppress(FileNotFoundError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()


Start = Callable[..., Running]


def start(*words: str, **environment: str) -> Running:
    """Runs the command until it says where it listens."""
    command = [sys.executable, "-m", "fairway", "serve", *words, "--http-port", "0", "--grpc-port", "0"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    running = Running(process)
    assert process.stdout is not None
    for line in process.stdout:
        running.lines.append(line.rstrip())
        if found := re.search(r"gRPC on .*:(\d+)", line):
            running.grpc = int(found[1])
        if found := re.search(r"HTTP on (https?)://.*:(\d+)", line):
            running.scheme, running.http = found[1], int(found[2])
            break
    else:
        raise AssertionError("\n".join(running.lines))
    # The rest is read too, or the pipe would fill up and the server stand still.
    rest = process.stdout
    threading.Thread(target=lambda: running.lines.extend(line.rstrip() for line in rest), daemon=True).start()
    return running


@pytest.fixture
def serving() -> Iterator[Start]:
    """Starts servers, which end with the test."""
    started: list[Running] = []

    def one(*words: str, **environment: str) -> Running:
        started.append(start(*words, **environment))
        return started[-1]

    yield one
    for running in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.stop()


def tensor(name: str, array: Array) -> dict[str, Any]:
    """A tensor as JSON."""
    flat = array.reshape(-1).tolist()
    return {"name": name, "shape": list(array.shape), "datatype": DATATYPES[array.dtype.name], "data": flat}


def ask(url: str, model: str = "net", timeout: float = 60, **inputs: Array) -> requests.Response:
    body = {"inputs": [tensor(name, array) for name, array in inputs.items()]}
    return requests.post(f"{url}/v2/models/{model}/infer", json=body, timeout=timeout)


def outputs(response: requests.Response) -> dict[str, Array]:
    assert response.status_code == 200, response.text
    told = response.json()["outputs"]
    return {one["name"]: np.asarray(one["data"], DTYPES[one["datatype"]]).reshape(one["shape"]) for one in told}


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.05)
