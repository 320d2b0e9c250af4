"""The workers seen from the server: started, watched, and started anew when they die."""

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

from fairway.deploy.serve.wire import Tensors, pack, receive
from fairway.diagnostics.errors import complain

BUFFER = 4 * 2**20
"""Bytes of an answer that are read before the reader has to take them."""
_log = logging.getLogger(__name__)


class WorkerDied(Exception):
    """The process ended before it answered."""


class ModelFailed(Exception):
    """The worker lives, but the runtime refused: the words are its own."""


class Hand:
    """One worker process and what it was asked."""

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: Any) -> None:
        self.process = process
        self.busy = False
        self.alive = True
        self._writer = writer
        self._asked: dict[int, asyncio.Future[Tensors]] = {}
        self._count = 0
        self.ended = asyncio.create_task(self._listen(reader))

    @classmethod
    async def hire(cls, threads: int) -> Hand:
        ours, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-m", "fairway.deploy.serve.worker", str(theirs.fileno()), str(threads)]
            process = subprocess.Popen(
                words,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server, which lets its workers finish
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=BUFFER)
        return cls(process, reader, writer)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head, tensors = await receive(reader)
                future = self._asked.pop(head["job"])
                if not future.done() and "error" in head:
                    future.set_exception(ModelFailed(head["error"]))
                elif not future.done():
                    future.set_result(tensors)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.alive = False
            self._writer.close()
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(WorkerDied())
            self._asked.clear()
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    async def ask(self, head: dict[str, Any], tensors: Any = ()) -> Tensors:
        if not self.alive:
            raise WorkerDied
        self._count += 1
        job = self._count
        self._asked[job] = asyncio.get_running_loop().create_future()
        self._writer.writelines(pack({**head, "job": job}, tensors))
        return await self._asked[job]

    def kill(self) -> None:
        self.alive = False
        self.process.kill()


class Pool:
    """As many workers as were asked for, each with all models. `free` is told whenever one has nothing to do."""

    def __init__(self, workers: int, threads: int, free: Callable[[], None]) -> None:
        self._size = workers
        self._threads = threads
        self._free = free
        self._models: dict[int, Path] = {}
        self._closing = False
        self._keepers: list[asyncio.Task[None]] = []
        self.hands: list[Hand] = []
        self.deaths = 0

    async def open(self) -> None:
        started = [asyncio.Event() for _ in range(self._size)]
        self._keepers = [asyncio.create_task(self._keep(event)) for event in started]
        await asyncio.gather(*(event.wait() for event in started))

    async def _keep(self, started: asyncio.Event) -> None:
        """Sees to one place in the pool: whoever dies there is replaced."""
        pause = 0.0
        while not self._closing:
            await asyncio.sleep(pause)
            hand = await Hand.hire(self._threads)
            try:
                await self._teach(hand)
            except (WorkerDied, ModelFailed) as error:
                hand.kill()
                pause = min(pause * 2 + 0.1, 5.0)
                _log.warning("a worker could not be started: %s", error)
                continue
            except asyncio.CancelledError:
                hand.kill()
                raise
            pause = 0.0
            self.hands.append(hand)
            started.set()
            self._free()
            await asyncio.shield(hand.ended)
            self.hands.remove(hand)
            if not self._closing:
                self.deaths += 1
                _log.warning("worker %d died and is replaced", hand.process.pid)

    async def _teach(self, hand: Hand) -> None:
        """Loads everything that is served, and what comes to be served meanwhile."""
        await hand.ask({"do": "drop", "model": 0})  # answered once the process is up
        known: set[int] = set()
        while new := [one for one in self._models if one not in known]:
            for number in new:
                path = self._models.get(number)
                if path is not None:
                    await hand.ask({"do": "load", "model": number, "path": str(path)})
                known.add(number)

    async def load(self, number: int, path: Path) -> None:
        """Loads a model in one worker after the other, while the others go on."""
        self._models[number] = path
        for hand in list(self.hands):
            try:
                await hand.ask({"do": "load", "model": number, "path": str(path)})
            except WorkerDied:
                continue  # its replacement loads all models
            except ModelFailed as error:
                await self.drop(number)
                raise complain("FW407", f"{path.name}: {error!s:.300}") from error

    async def drop(self, number: int) -> None:
        self._models.pop(number, None)
        for hand in list(self.hands):
            with contextlib.suppress(WorkerDied):
                await hand.ask({"do": "drop", "model": number})

    def idle(self) -> Hand | None:
        return next((hand for hand in self.hands if hand.alive and not hand.busy), None)

    async def close(self) -> None:
        self._closing = True
        ended = [hand.ended for hand in self.hands]
        for hand in self.hands:
            hand.kill()
        await asyncio.gather(*ended)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)


def default_shape(workers: int | None) -> tuple[int, int]:
    """How many workers, and how many threads each: as many as cores, and together no more than cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = workers or cores
    return count, max(1, cores // count)
