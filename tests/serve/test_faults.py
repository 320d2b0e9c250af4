"""Faults in production: no wrong answer, no lost request, no growing memory."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import requests

from serve.conftest import Running, Start, ask, outputs, until
from serve.models import scaled, slow


class Load:
    """Clients that ask without a pause, each over a separate connection, and check every answer."""

    def __init__(self, url: str, clients: int, right: Callable[[Any, Any], bool], shape: tuple[int, ...]) -> None:
        self.wrong: list[str] = []
        self.count = 0
        self._url, self._right, self._shape = url, right, shape
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(clients)]
        for one in self._threads:
            one.start()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()

    def _ask(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        with requests.Session() as session:
            while not self._stop.is_set():
                x = generator.normal(size=(1 + seed % 3, *self._shape)).astype(np.float32)
                flat = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.reshape(-1).tolist()}
                try:
                    got = session.post(f"{self._url}/v2/models/net/infer", json={"inputs": [flat]}, timeout=60)
                    if got.status_code != 200:
                        self.wrong.append(got.text)
                    elif not self._right(x, outputs(got)["y"]):
                        self.wrong.append(f"another answer: {got.text[:200]}")
                except requests.RequestException as error:
                    self.wrong.append(repr(error))
                self.count += 1

    def end(self) -> int:
        self._stop.set()
        for one in self._threads:
            one.join(60)
        assert self.wrong == [], self.wrong[:3]
        return self.count


def same(x: Any, y: Any) -> bool:
    return bool(np.array_equal(x.reshape(-1), y))


def lives(pid: int) -> bool:
    """A process that ended and was not fetched by its parent, which may be this one, is dead too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_killed_workers_cost_no_accepted_request(tmp_path: Path, serving: Start) -> None:
    server = serving(f"net={slow(tmp_path / 'net.onnx')}", "--workers", "2")
    with Load(server.url, 8, same, (1, 1)) as load:
        for count, died in ((1, 1), (2, 3), (1, 4), (2, 6)):  # also both at once
            time.sleep(0.2)
            for victim in server.workers()[:count]:
                os.kill(victim, signal.SIGKILL)
            until(lambda died=died: _told(server, "fairway_workers_died") == died)
            until(lambda: _told(server, "fairway_workers") == 2)
        assert load.end() > 20


def _told(server: Running, name: str) -> float:
    text = requests.get(f"{server.url}/metrics", timeout=30).text
    return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def test_reload_under_load_answers_by_the_old_file_or_the_new_one(tmp_path: Path, serving: Start) -> None:
    model = scaled(tmp_path / "net.onnx", 2.0)
    server = serving(f"net={model}", "--workers", "2")
    x = np.ones((1, 2, 3), np.float32)

    def by_one_of_them(asked: Any, answered: Any) -> bool:
        return any(np.array_equal(answered.astype(np.float32), asked * np.float32(by)) for by in (2, 3, 4))

    with Load(server.url, 6, by_one_of_them, (3, 3)) as load:
        for by in (3.0, 4.0):
            scaled(model, by)
            requests.post(f"{server.url}/v2/repository/models/net/load", timeout=60).raise_for_status()
            np.testing.assert_array_equal(outputs(ask(server.url, x=x))["y"], x * by)
        assert load.end() > 20


def test_a_file_that_differs_from_its_record_is_not_loaded(tmp_path: Path, serving: Start) -> None:
    model = scaled(tmp_path / "net.onnx", 2.0)
    server = serving(f"net={model}", "--workers", "1")
    whole = model.read_bytes()
    scaled(tmp_path / "other.onnx", 9.0)
    model.write_bytes((tmp_path / "other.onnx").read_bytes())
    assert model.read_bytes() != whole
    got = requests.post(f"{server.url}/v2/repository/models/net/load", timeout=60)
    assert got.json()["finding"]["code"] == "FW801"
    x = np.ones((1, 2, 3), np.float32)
    np.testing.assert_array_equal(outputs(ask(server.url, x=x))["y"], x * 2)


def test_slow_and_half_open_clients_are_cut_off_and_disturb_nobody(tmp_path: Path, serving: Start) -> None:
    server = serving(f"net={scaled(tmp_path / 'net.onnx')}", "--timeout", "2s", "--workers", "1")
    head = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n"
    sent = {"nothing": b"", "half a head": head, "half a body": head + b'\r\n{"inputs"'}
    held = {}
    for what, words in sent.items():
        held[what] = socket.create_connection(("127.0.0.1", server.http))
        held[what].sendall(words)
    x = np.ones((1, 2, 3), np.float32)
    np.testing.assert_array_equal(outputs(ask(server.url, x=x))["y"], x * 2)
    for what, one in held.items():
        one.settimeout(20)
        try:
            said = one.recv(10_000)
        except ConnectionResetError:
            said = b""
        assert said.startswith(b"HTTP/1.1 408") if what == "half a body" else said == b"", (what, said)
        one.close()


def test_clients_that_leave_before_their_answer_disturb_nobody(tmp_path: Path, serving: Start) -> None:
    server = serving(f"net={slow(tmp_path / 'net.onnx')}", "--workers", "1")
    body = b'{"inputs":[{"name":"x","shape":[1,1,1],"datatype":"FP32","data":[1]}]}'
    head = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.http)) as one:
            one.sendall(head + body)
    assert same(np.float32([5]), outputs(ask(server.url, x=np.full((1, 1, 1), 5, np.float32)))["y"])


def test_memory_is_flat_through_idle_connections_and_thousands_of_requests(tmp_path: Path, serving: Start) -> None:
    server = serving(f"net={scaled(tmp_path / 'net.onnx')}", "--workers", "1")

    def some(count: int) -> None:
        with requests.Session() as session:
            for number in range(count):
                x = np.full((1 + number % 8, 2 + number % 19, 3), number, np.float32)
                flat = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.reshape(-1).tolist()}
                got = session.post(f"{server.url}/v2/models/net/infer", json={"inputs": [flat]}, timeout=60)
                np.testing.assert_array_equal(outputs(got)["y"], x * 2)

    some(400)
    before = server.memory()
    idle = [socket.create_connection(("127.0.0.1", server.http)) for _ in range(1000)]
    some(1200)
    for one in idle:
        one.close()
    some(100)
    assert server.memory() - before < 24 * 2**20


def test_more_requests_than_the_queue_takes_are_turned_away(tmp_path: Path, serving: Start) -> None:
    server = serving(f"net={slow(tmp_path / 'net.onnx', times=60)}", "--workers", "1", "--queue", "2")
    seen: list[int] = []

    def one() -> None:
        got = ask(server.url, x=np.ones((1, 1, 1), np.float32))
        seen.append(got.status_code)
        assert got.status_code == 200 or got.json()["finding"]["code"] == "FW816"

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(seen) == {200, 503}


def test_a_worker_that_takes_too_long_is_replaced(tmp_path: Path, serving: Start) -> None:
    server = serving(f"net={slow(tmp_path / 'net.onnx', times=4)}", "--workers", "1", "--timeout", "3s")
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)
    got = ask(server.url, x=np.ones((1, 1, 1), np.float32))
    assert got.status_code == 504
    assert got.json()["finding"]["code"] == "FW818"
    until(lambda: worker not in server.workers() and _told(server, "fairway_workers") == 1)
    assert ask(server.url, x=np.ones((1, 1, 1), np.float32)).status_code == 200


def test_a_request_that_is_in_is_answered_before_the_server_ends(tmp_path: Path, serving: Start) -> None:
    server = serving(f"net={slow(tmp_path / 'net.onnx', times=100)}", "--workers", "1")
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(ask(server.url, x=np.full((7, 1, 1), 3, np.float32))))
    thread.start()
    time.sleep(0.15)
    workers = server.workers()
    assert server.stop() == 0
    thread.join(30)
    assert same(np.full(7, 3, np.float32), outputs(got[0])["y"])
    until(lambda: not any(map(lives, workers)))


def test_workers_end_when_the_server_is_killed(tmp_path: Path, serving: Start) -> None:
    server = serving(f"net={scaled(tmp_path / 'net.onnx')}", "--workers", "2")
    workers = server.workers()
    assert len(workers) == 2
    server.process.kill()
    until(lambda: not any(map(lives, workers)))
