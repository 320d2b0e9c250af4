"""The worker processes of a server: started, watched, and replaced when they die."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairway.deploy.serve.wire import Head, Tensors, pack, receive
from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain

ANSWER_BUFFER_BYTES = 4 * 2**20
"""Bytes of an answer that are buffered before the reader takes them."""
_log = logging.getLogger(__name__)


class WorkerDied(Exception):
    """The process ended before it answered."""


class ModelFailed(Exception):
    """The runtime reported an error, and the worker lives. The message is the runtime's."""


class WorkerHandle:
    """One worker process, and the requests that it has not answered."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self.busy = False
        self.alive = True
        self._writer = writer
        self._pending: dict[int, asyncio.Future[Tensors]] = {}
        self._count = 0
        self.ended = asyncio.create_task(self._listen(reader))

    @classmethod
    async def start(cls, threads: int) -> WorkerHandle:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "fairway.deploy.serve.worker", str(theirs.fileno()), str(threads)]
            process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server, which lets its workers finish
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=ANSWER_BUFFER_BYTES)
        return cls(process, reader, writer)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head, tensors = await receive(reader)
                future = self._pending.pop(head["job"])
                if not future.done() and "error" in head:
                    future.set_exception(ModelFailed(head["error"]))
                elif not future.done():
                    future.set_result(tensors)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.alive = False
            self._writer.close()
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(WorkerDied())
            self._pending.clear()
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    async def ask(self, head: Head, tensors: Any = ()) -> Tensors:
        if not self.alive:
            raise WorkerDied
        self._count += 1
        job = self._count
        self._pending[job] = asyncio.get_running_loop().create_future()
        self._writer.writelines(pack({**head, "job": job}, tensors))
        return await self._pending[job]

    def kill(self) -> None:
        self.alive = False
        self.process.kill()


class WorkerPool:
    """A fixed number of workers, each with all models. `on_free` is called whenever one has nothing to do."""

    def __init__(self, count: int, threads: int, on_free: Callable[[], None]) -> None:
        self._count = count
        self._threads = threads
        self._on_free = on_free
        self._models: dict[int, Path] = {}
        self._closing = False
        self._keepers: list[asyncio.Task[None]] = []
        self.workers: list[WorkerHandle] = []
        self.deaths = 0

    async def open(self) -> None:
        started = [asyncio.Event() for _ in range(self._count)]
        self._keepers = [asyncio.create_task(self._keep_running(event)) for event in started]
        await asyncio.gather(*(event.wait() for event in started))

    async def _keep_running(self, started: asyncio.Event) -> None:
        """Keep one worker of the pool running: replace it whenever it dies."""
        pause = 0.0
        while not self._closing:
            await asyncio.sleep(pause)
            worker = await WorkerHandle.start(self._threads)
            try:
                await self._load_models(worker)
            except (WorkerDied, ModelFailed) as error:
                worker.kill()
                pause = min(pause * 2 + 0.1, 5.0)
                _log.warning("a worker could not be started: %s", error)
                continue
            except asyncio.CancelledError:
                worker.kill()
                raise
            pause = 0.0
            self.workers.append(worker)
            started.set()
            self._on_free()
            await asyncio.shield(worker.ended)
            self.workers.remove(worker)
            if not self._closing:
                self.deaths += 1
                _log.warning("worker %d died and is replaced", worker.process.pid)

    async def _load_models(self, worker: WorkerHandle) -> None:
        """Load everything that is served, including models that are added meanwhile."""
        await worker.ask({"do": "drop", "model": 0})  # answered once the process is up
        known: set[int] = set()
        while new := [number for number in self._models if number not in known]:
            for number in new:
                path = self._models.get(number)
                if path is not None:
                    await worker.ask({"do": "load", "model": number, "path": str(path)})
                known.add(number)

    async def load(self, number: int, path: Path) -> None:
        """Load a model in one worker after another, while the others answer requests."""
        self._models[number] = path
        for worker in list(self.workers):
            try:
                await worker.ask({"do": "load", "model": number, "path": str(path)})
            except WorkerDied:
                continue  # its replacement loads all models
            except ModelFailed as error:
                await self.drop(number)
                raise complain(Code.RUNTIME_REFUSES, f"{path.name}: {error!s:.300}") from error

    async def drop(self, number: int) -> None:
        self._models.pop(number, None)
        for worker in list(self.workers):
            with contextlib.suppress(WorkerDied):
                await worker.ask({"do": "drop", "model": number})

    def find_idle(self) -> WorkerHandle | None:
        return next((worker for worker in self.workers if worker.alive and not worker.busy), None)

    async def close(self) -> None:
        self._closing = True
        ended = [worker.ended for worker in self.workers]
        for worker in self.workers:
            worker.kill()
        await asyncio.gather(*ended)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)


def choose_pool_size(workers: int | None) -> tuple[int, int]:
    """Return how many workers to start, and how many threads for each. Together they use no more than all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = workers or cores
    return count, max(1, cores // count)
